// Random walks over allowed tokens produce texts that match the grammar.
#include "attend/grammar/grammar_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "tests/grammar/grammar_folder.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using testing::tiny_compiler;
using testing::tiny_vocabulary;

class GrammarCompilerTest : public testing::WithGrammars {};

constexpr int32_t kEnd = 1;  // </s> of the bundled model

std::vector<int32_t> allowed(TokenMask& mask) {
  std::vector<uint32_t> words(testing::kVocabulary / 32);
  std::vector<int32_t> ids;
  const bool any = !mask.fill(words);
  for (int32_t id = 0; id < testing::kVocabulary; ++id)
    if (any || (words[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0) ids.push_back(id);
  return ids;
}

struct RandomText {
  std::vector<int32_t> ids;
  bool ended = false;
};

// Samples allowed tokens at random; samples the end token with probability 1/2 once it is allowed.
RandomText sample_text(TokenMask& mask, uint32_t seed, int max_tokens = 300) {
  std::mt19937 random(seed);
  RandomText sample;
  while (static_cast<int>(sample.ids.size()) < max_tokens) {
    const std::vector<int32_t> ids = allowed(mask);
    if (ids.empty()) break;
    const bool may_end = std::ranges::find(ids, kEnd) != ids.end();
    const int32_t id = may_end && random() % 2 == 0 ? kEnd : ids[random() % ids.size()];
    mask.accept(id);
    if (id == kEnd) {
      sample.ended = true;
      break;
    }
    sample.ids.push_back(id);
  }
  return sample;
}

std::string text_of(const RandomText& sample) {
  static const Tokenizer tokenizer = *tiny_vocabulary().tokenizer;
  return tokenizer.decode(sample.ids);
}

std::string error_text(GrammarCompiler& compiler, const Grammar& grammar) {
  try {
    compiler.compile(grammar);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(GrammarCompilerTest, TextsOfASchemaAreValidJson) {
  const auto compiler = tiny_compiler();
  const auto mask = compiler->compile({GrammarKind::kJsonSchema, R"({"type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 3, "maximum": 120},
                   "color": {"enum": ["red", "green", null]},
                   "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}},
    "required": ["name", "age", "color", "tags"], "additionalProperties": false})"});
  int num_ended = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const RandomText sample = sample_text(*mask->fork(), seed);
    if (!sample.ended) continue;
    ++num_ended;
    const auto value = nlohmann::json::parse(text_of(sample), nullptr, false);
    ASSERT_TRUE(value.is_object()) << text_of(sample);
    EXPECT_EQ(value.size(), 4u);
    EXPECT_LE(value.at("name").get<std::string>().size(), 80u);
    EXPECT_GE(value.at("age"), 3);
    EXPECT_LE(value.at("age"), 120);
    const std::set<nlohmann::json> colors = {"red", "green", nullptr};
    EXPECT_TRUE(colors.contains(value.at("color")));
    EXPECT_THAT(value.at("tags").size(), ::testing::AllOf(::testing::Ge(1u), ::testing::Le(3u)));
  }
  EXPECT_GT(num_ended, 25);
}

TEST_F(GrammarCompilerTest, TextsOfARegexMatchIt) {
  const auto compiler = tiny_compiler();
  const std::string regex = "(red|green|blue) [0-9]{2,4}( end)?";
  const auto mask = compiler->compile({GrammarKind::kRegex, regex});
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const RandomText sample = sample_text(*mask->fork(), seed);
    ASSERT_TRUE(sample.ended);
    EXPECT_TRUE(std::regex_match(text_of(sample), std::regex(regex))) << text_of(sample);
  }
}

TEST_F(GrammarCompilerTest, ChoicesAreLiteral) {
  const std::vector<std::string> choices = {"yes", "no (\"never\")", "a\\b\n", "é\t"};
  const auto compiler = tiny_compiler();
  const auto mask = compiler->compile(choice_grammar(choices));
  std::set<std::string> texts;
  for (uint32_t seed = 0; seed < 100; ++seed) texts.insert(text_of(sample_text(*mask->fork(), seed)));
  EXPECT_EQ(texts, std::set(choices.begin(), choices.end()));
}

TEST_F(GrammarCompilerTest, ReadsGbnfAndStructuralTags) {
  const auto compiler = tiny_compiler();
  const auto sums =
      compiler->compile({GrammarKind::kEbnf, "root ::= term (\"+\" term)*\nterm ::= [1-9] [0-9]{0,2}"});
  for (uint32_t seed = 0; seed < 20; ++seed)
    EXPECT_TRUE(std::regex_match(text_of(sample_text(*sums->fork(), seed)),
                                 std::regex("[1-9][0-9]*(\\+[1-9][0-9]*)*")));
  const auto call = compiler->compile(
      {GrammarKind::kStructuralTag, R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<call>",
        "content": {"type": "json_schema", "json_schema": {"type": "boolean"}}, "end": "</call>"}})"});
  for (uint32_t seed = 0; seed < 20; ++seed)
    EXPECT_TRUE(std::regex_match(text_of(sample_text(*call->fork(), seed)),
                                 std::regex("<call>\\s*(true|false)\\s*</call>")));
}

TEST_F(GrammarCompilerTest, AllowsTheEndOnlyAfterACompleteText) {
  const auto compiler = tiny_compiler();
  const auto mask = compiler->compile({GrammarKind::kRegex, "ab?"});
  const Tokenizer tokenizer = *tiny_vocabulary().tokenizer;
  EXPECT_THAT(allowed(*mask), ::testing::Not(::testing::Contains(kEnd)));
  mask->accept(tokenizer.token_id("a").value());
  EXPECT_THAT(allowed(*mask), ::testing::Contains(kEnd));
  mask->accept(tokenizer.token_id("b").value());
  EXPECT_THAT(allowed(*mask), ::testing::ElementsAre(kEnd));
  EXPECT_THAT(allowed(*mask->fork()), ::testing::Not(::testing::Contains(kEnd)))
      << "a fork starts from the beginning";
  EXPECT_THROW(mask->accept(tokenizer.token_id("b").value()), Error);
  mask->accept(kEnd);
  EXPECT_EQ(allowed(*mask).size(), static_cast<size_t>(testing::kVocabulary))
      << "after the end everything may come";
}

TEST_F(GrammarCompilerTest, SpecialTokensAreNotText) {
  const auto compiler = tiny_compiler();
  const auto mask = compiler->compile({GrammarKind::kRegex, "[^a]*"});
  EXPECT_THAT(allowed(*mask), ::testing::Not(::testing::Contains(0)));
}

TEST_F(GrammarCompilerTest, ReportsGrammarErrors) {
  const auto compiler = tiny_compiler();
  EXPECT_EQ(error_text(*compiler, {GrammarKind::kRegex, "(a"}),
            "regex: a pattern with ( at character 1 has no )");
  EXPECT_THAT(error_text(*compiler, {GrammarKind::kEbnf, "root ::= nowhere"}),
              HasSubstr("ebnf: EBNF parser error"));
  EXPECT_THAT(error_text(*compiler, {GrammarKind::kJsonSchema, R"({"type": "nothing"})"}),
              HasSubstr("Unsupported type"));
  EXPECT_THAT(error_text(*compiler, {GrammarKind::kJsonSchema, R"({"$ref": "#"})"}), HasSubstr("no text"));
  EXPECT_THAT(error_text(*compiler, {GrammarKind::kJsonSchema, R"({"not": {}})"}),
              HasSubstr("json_schema: #: \"not\""));
  GrammarLimits small;
  small.grammar_bytes = 10;
  EXPECT_THAT(error_text(*tiny_compiler(small), {GrammarKind::kRegex, "abcdefghijk"}),
              HasSubstr("at most 10"));
}

TEST_F(GrammarCompilerTest, RejectsAVocabularyWithoutAnEndToken) {
  GrammarVocabulary vocabulary = tiny_vocabulary();
  vocabulary.stop_ids.clear();
  GrammarCompiler compiler(GrammarLibrary::load(), vocabulary);
  EXPECT_THAT(error_text(compiler, {GrammarKind::kRegex, "a"}), HasSubstr("end-of-sequence"));
}

// Several threads compile few grammars. Each caller gets the mask of its grammar.
TEST_F(GrammarCompilerTest, ServesConcurrentCallers) {
  GrammarLimits limits;
  limits.cache_bytes = 1;  // one grammar
  const auto compiler = tiny_compiler(limits);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string text = "number " + std::to_string((t + i) % 5);
        EXPECT_EQ(text_of(sample_text(*compiler->compile(choice_grammar({{text}})), 0)), text);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GrammarCompilerTest, NotifiesWaitingCallersOnShutdown) {
  std::atomic<int> num_results = 0;
  {
    const auto compiler = tiny_compiler();
    for (int i = 0; i < 50; ++i)
      compiler->compile({GrammarKind::kRegex, "a{" + std::to_string(i + 1) + "}"},
                        [&](const GrammarResult& result) {
                          EXPECT_EQ(result.mask == nullptr, result.error.has_value());
                          ++num_results;
                        });
  }
  EXPECT_EQ(num_results, 50);
}

TEST(GrammarLibrary, MissingNamedLibraryIsAnError) { EXPECT_THROW(GrammarLibrary::load("/nowhere"), Error); }

TEST(GrammarLibrary, MissingLibraryRejectsGrammarsWithAdvice) {
  GrammarCompiler compiler(GrammarLibrary(), tiny_vocabulary());
  EXPECT_THAT(error_text(compiler, json_object_grammar()), HasSubstr("pip install"));
}

}  // namespace
}  // namespace attend
