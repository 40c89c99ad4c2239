// Hostile grammars end in a mask or an error within the time limit, without a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/grammar/grammar_folder.h"

namespace attend {
namespace {

using nlohmann::json;
using testing::tiny_compiler;

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

// Compilations time out one after another. Each loses its thread, and a new thread compiles later grammars.
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

}  // namespace
}  // namespace attend
