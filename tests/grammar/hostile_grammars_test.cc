// Hostile grammars end in a mask or an error within the time limit, without a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "attend/engine/engine.h"
#include "tests/grammar/grammar_folder.h"

namespace attend {
namespace {

using nlohmann::json;
using testing::tiny_compiler;

int32_t tiny_token(const std::string& text) { return *testing::tiny_vocabulary().tokenizer->token_id(text); }

class HostileGrammars : public testing::WithGrammars {};

std::string repeat(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

std::string nested_one_of(int depth) {
  json schema = {{"type", "string"}};
  for (int i = 0; i < depth; ++i)
    schema = {{"oneOf",
               {{{"type", "object"}, {"properties", {{"a", schema}, {"b" + std::to_string(i), schema}}}},
                {{"type", "array"}, {"items", schema}}}}};
  return schema.dump();
}

std::string huge_enum(int size) {
  json schema = {{"enum", json::array()}};
  for (int i = 0; i < size; ++i) schema["enum"].push_back("value " + std::to_string(i));
  return schema.dump();
}

std::string counted_properties() {
  json schema = {{"type", "object"}, {"minProperties", 100}};
  for (int i = 0; i < 200; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  return schema.dump();
}

TEST_F(HostileGrammars, EndInAMaskOrAError) {
  constexpr auto kJsonSchema = GrammarKind::kJsonSchema;
  constexpr auto kRegex = GrammarKind::kRegex;
  constexpr auto kEbnf = GrammarKind::kEbnf;
  const std::vector<std::pair<Grammar, bool>> grammars = {
      {{kJsonSchema, nested_one_of(3)}, true},
      {{kJsonSchema, nested_one_of(3).substr(0, 100)}, false},
      {{kJsonSchema, repeat(R"({"type":"array","items":)", 60) + "{}" + repeat("}", 60)}, true},
      {{kJsonSchema, repeat(R"({"items":)", 100'000) + "{}" + repeat("}", 100'000)}, false},
      {{kJsonSchema, huge_enum(1000)}, true},
      {{kJsonSchema, R"({"$ref": "#"})"}, false},
      {{kJsonSchema, R"({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})"}, false},
      {{kJsonSchema,
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"},
       false},
      {{kJsonSchema, R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties":
         {"left": {"$ref": "#/$defs/n"}, "right": {"$ref": "#/$defs/n"}}}}})"},
       true},
      {{kJsonSchema, R"({"type": "string", "pattern": "(["})"}, false},
      {{kJsonSchema, R"({"type": "string", "minLength": 1000000000})"}, true},
      {{kJsonSchema, R"({"type": "array", "items": {}, "minItems": 100000000})"}, true},
      {{kJsonSchema, R"({"type": "integer", "minimum": -9e18, "maximum": 9e18})"}, true},
      {{kJsonSchema, R"({"type": "integer", "minimum": 5, "maximum": 2})"}, false},
      {{kJsonSchema, R"({"type": ["a", 1]})"}, false},
      {{kJsonSchema, "false"}, false},
      {{kJsonSchema, "5"}, false},
      {{kJsonSchema, ""}, false},
      {{kJsonSchema, "\xff"}, false},
      {{kRegex, "(a{1,1000}){1,1000}"}, true},
      {{kRegex, "(a*)*b"}, true},
      {{kRegex, repeat("(", 100'000)}, false},
      {{kRegex, repeat("(", 20'000) + "a" + repeat(")", 20'000)}, false},
      {{kRegex, "[z-a]"}, false},
      {{kRegex, std::string("a\0b", 3)}, false},
      {{kRegex, "(a)\\1"}, false},
      {{kRegex, "\xff\xfe"}, false},
      {{kEbnf, "root ::= root \"a\" | \"a\""}, true},
      {{kEbnf, "root ::= root root | \"a\" | \"\""}, true},
      {{kEbnf, "root ::= a\na ::= b\nb ::= a"}, false},
      {{kEbnf, "root ::= " + repeat("(", 50'000)}, false},
      {{kEbnf, ""}, false},
      {{kEbnf, "root ::= \"\\xff\""}, true},
      {{GrammarKind::kStructuralTag, "{}"}, false},
      {{GrammarKind::kStructuralTag, "["}, false},
  };
  GrammarLimits limits;
  limits.compile_time = std::chrono::seconds(2);
  const auto compiler = tiny_compiler(limits);
  std::vector<uint32_t> words(testing::kVocabulary / 32);
  for (const auto& [grammar, good] : grammars) {
    SCOPED_TRACE(grammar.text.substr(0, 80));
    try {
      const std::shared_ptr<TokenMask> mask = compiler->compile(grammar);
      EXPECT_TRUE(good);
      mask->fill(words);
    } catch (const Error& error) {
      const bool slow = std::string(error.what()).find("not compiled within") != std::string::npos;
      EXPECT_TRUE(slow || !good) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 500u);
    }
  }
}

// Compilations time out one after another. Each loses its process, and later grammars are compiled.
TEST_F(HostileGrammars, TimeOutWithoutBlockingOthers) {
  GrammarLimits limits;
  limits.compile_time = std::chrono::milliseconds(100);
  const auto compiler = tiny_compiler(limits);
  for (const std::string& schema : {counted_properties(), huge_enum(30'000), counted_properties()}) {
    try {
      compiler->compile({GrammarKind::kJsonSchema, schema});
      ADD_FAILURE() << "compiled within the limit, so nothing was tested";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_STREQ(error.what(), "json_schema: not compiled within 100 ms; expected a simpler one");
    }
  }
  for (int tries = 0;; ++tries) {
    try {
      EXPECT_NE(compiler->compile({GrammarKind::kRegex, "a"}), nullptr);
      break;
    } catch (const Error& error) {
      ASSERT_LT(tries, 100) << error.what();  // the machine may be busy
    }
  }
}

std::string compile_error(GrammarCompiler& compiler, const Grammar& grammar) {
  try {
    compiler.compile(grammar);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(HostileGrammars, LimitTheMemoryOfACompilation) {
  GrammarLimits limits;
  limits.memory_bytes = 16 << 20;
  const auto compiler = tiny_compiler(limits);
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 50'000; ++i) rules += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  EXPECT_THAT(compile_error(*compiler, {GrammarKind::kEbnf, rules + "r50000 ::= \"a\""}),
              ::testing::HasSubstr("needs more than 16 MiB of memory"));
  EXPECT_EQ(compile_error(*compiler, {GrammarKind::kRegex, "a"}), "") << "other grammars are compiled";
}

// Each grammar counts with 64 MiB while it compiles, and afterwards with at least an eighth of that.
TEST_F(HostileGrammars, LimitTheMemoryOfAllGrammars) {
  GrammarLimits limits;
  limits.memory_bytes = 64 << 20;
  limits.total_memory_bytes = 96 << 20;
  limits.compile_time = std::chrono::seconds(1);
  const auto compiler = tiny_compiler(limits);
  const auto regex = [](int i) { return Grammar{GrammarKind::kRegex, "a{" + std::to_string(i) + "}"}; };
  // Grammars without texts make room for others.
  for (int i = 1; i <= 16; ++i) EXPECT_EQ(compile_error(*compiler, regex(i)), "") << i;
  std::vector<std::shared_ptr<TokenMask>> held;
  std::string error;
  for (int i = 1; i <= 16 && error.empty(); ++i) {
    try {
      held.push_back(compiler->compile(regex(i)));
    } catch (const Error& failure) {
      EXPECT_EQ(failure.code(), ErrorCode::kOutOfMemory);
      error = failure.what();
    }
  }
  EXPECT_THAT(error, ::testing::HasSubstr("need the memory of all grammars, 96 MiB; try again later"));
  EXPECT_GE(held.size(), 1u);
  EXPECT_LE(held.size(), 8u);
  held.clear();
  EXPECT_EQ(compile_error(*compiler, regex(17)), "") << "a grammar that waits gets the memory";
}

constexpr char kAmbiguous[] = "root ::= e\ne ::= e e e e e | [a-z ] | \"\"";

constexpr char kAmbiguousRegex[] = "(([a-z ]{0,9}){0,99}){0,99}";

// Samples allowed tokens at random, and returns the error that ends the text.
std::string walk(TokenMask& mask) {
  std::vector<uint32_t> words(testing::kVocabulary / 32);
  try {
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
      mask.fill(words);
      std::vector<int32_t> allowed;
      for (int32_t id = 2; id < testing::kVocabulary; ++id)  // not the end of the text
        if ((words[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0) allowed.push_back(id);
      if (allowed.empty()) return "no token";
      mask.accept(allowed[random() % allowed.size()]);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(HostileGrammars, LimitTheTimeOfAMask) {
  GrammarLimits limits;
  limits.mask_time = std::chrono::milliseconds(50);
  const auto compiler = tiny_compiler(limits);
  const auto other = compiler->compile({GrammarKind::kRegex, "[a-z ]*"});
  const auto mask = compiler->compile({GrammarKind::kRegex, kAmbiguousRegex});
  const auto same = mask->fork();
  EXPECT_EQ(walk(*mask), "regex: the mask of a token was not computed within 50 ms; expected a simpler one");
  EXPECT_EQ(walk(*same), "regex: the mask of a token was not computed within 50 ms; expected a simpler one")
      << "the texts of a grammar share a process";
  EXPECT_NE(compiler->compile({GrammarKind::kRegex, kAmbiguousRegex}), nullptr) << "a new process is started";
  std::vector<uint32_t> words(testing::kVocabulary / 32);
  EXPECT_TRUE(other->fill(words)) << "masks of other grammars are computed";
}

// A request with masks that exceed the time limit ends; the others of the engine get all their tokens.
TEST_F(HostileGrammars, EndTheirRequestOnly) {
  GrammarLimits limits;
  // A slow machine may need much of this for the other grammar's masks.
  limits.mask_time = std::chrono::milliseconds(1000);
  const auto compiler = tiny_compiler(limits);
  EngineConfig config;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  Engine engine(config);
  const SamplingParams params{
      .max_new_tokens = 1000, .temperature = 1.0f, .seed = 1, .ignore_eos = true, .n = 3};
  const RequestId hostile = engine.submit(
      {.prompt = "sun", .params = params, .mask = compiler->compile({GrammarKind::kEbnf, kAmbiguous})});
  const RequestId plain = engine.submit({.prompt = "sun", .params = params});
  const RequestId schema = engine.submit(
      {.prompt = "sun", .params = params, .mask = compiler->compile({GrammarKind::kRegex, "[a-z ]*"})});
  std::map<RequestId, int> num_tokens, num_errors;
  while (engine.step([&](const RequestOutput& output) {
    num_tokens[output.id] += static_cast<int>(output.token_ids.size());
    num_errors[output.id] += output.finish_reason == FinishReason::kError;
    if (output.finish_reason == FinishReason::kError) {
      EXPECT_THAT(std::string(output.message), ::testing::HasSubstr("not computed within 1000 ms"));
      EXPECT_EQ(output.error_code, ErrorCode::kInvalidArgument);
    }
  })) {
  }
  EXPECT_EQ(num_errors[hostile], 3);
  EXPECT_EQ(num_tokens[plain], 3000);
  EXPECT_EQ(num_tokens[schema], 3000);
}

TEST_F(HostileGrammars, EndOfACompilerEndsWaitingMasks) {
  GrammarLimits limits;
  limits.mask_time = std::chrono::hours(1);
  auto compiler = tiny_compiler(limits);
  const auto mask = compiler->compile({GrammarKind::kRegex, kAmbiguousRegex});
  mask->accept(tiny_token("a"));
  compiler.reset();
  std::vector<uint32_t> words(testing::kVocabulary / 32);
  EXPECT_THROW(mask->fill(words), Error);
}

}  // namespace
}  // namespace attend
