// Patterns of JSON schemas match the text that JSON has between quotes.
#include "attend/grammar/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>

#include "attend/base/error.h"
#include "tests/grammar/grammar_folder.h"

namespace attend {
namespace {

using ::testing::HasSubstr;

std::string pattern_error(const std::string& pattern) {
  try {
    parse_pattern(pattern);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonPattern, EscapesWhatJsonEscapes) {
  EXPECT_EQ(json_string_regex("^abc$"), "abc");
  EXPECT_EQ(json_string_regex(R"(C:\\)"), R"(C:\\\\)");
  EXPECT_EQ(json_string_regex(R"("[a-z]{2}")"), R"(\\"[a-z]{2}\\")");
  EXPECT_EQ(json_string_regex(R"(a\nb+)"), R"(a\\nb+)");
  EXPECT_EQ(json_string_regex(R"([\x00\x1f\t]?)"), R"(((\\t|\\u0000|\\u001f))?)");
  EXPECT_EQ(text_regex(R"("\d"|(?:a|b)*)"), R"("[0-9]"|(a|b)*)");
}

TEST(JsonPattern, ReportsThePositionOfWhatItCannotMatch) {
  EXPECT_EQ(pattern_error("^a$b"), "with $ at character 3 can only be at the end");
  EXPECT_EQ(pattern_error("é^b"), "with ^ at character 2 can only be at the start");
  EXPECT_EQ(pattern_error("(a$)b"), "with $ at character 3 can only be at the end");
  EXPECT_EQ(pattern_error("(^a)*"), "with ^ at character 2 can only be at the start");
  EXPECT_THAT(pattern_error("a(?!b)"), HasSubstr("with (?! at character 2 is not supported"));
  EXPECT_THAT(pattern_error("(?<=b)a"), HasSubstr("with (?<= at character 1"));
  EXPECT_THAT(pattern_error(R"(\bword)"), HasSubstr(R"(with \b at character 1)"));
  EXPECT_THAT(pattern_error(R"((a)\1)"), HasSubstr(R"(with \1 at character 4)"));
  EXPECT_THAT(pattern_error(R"(\p{L})"), HasSubstr(R"(with \p at character 1)"));
  EXPECT_THAT(pattern_error(R"(\ud800)"), HasSubstr("is no character"));
  EXPECT_THAT(pattern_error("[b-a]"), HasSubstr("with b-a at character 2 is no range"));
  EXPECT_THAT(pattern_error("[]"), HasSubstr("matches no character"));
  for (const char* malformed : {"(a", "a)", "[a", "*a", "a**", "a{2}{3}", "a{3,2}", R"(\)", R"(\x4)",
                                R"(\u{})", "(?<name", "a{999999999999}"})
    EXPECT_NE(pattern_error(malformed), "") << malformed;
}

TEST(JsonPattern, DistinguishesMalformedFromUnsupportedPatterns) {
  const auto code = [](const char* pattern) -> std::optional<ErrorCode> {
    try {
      parse_pattern(pattern);
    } catch (const Error& error) {
      return error.code();
    }
    return std::nullopt;
  };
  for (const char* malformed : {"(a", "[a", "*a", "a{3,2}", R"(\)"})
    EXPECT_EQ(code(malformed), ErrorCode::kInvalidArgument) << malformed;
  for (const char* unsupported : {"a(?!b)", R"(\bword)", "^a$b"})
    EXPECT_EQ(code(unsupported), ErrorCode::kUnsupported) << unsupported;
}

TEST(JsonPattern, ReadsAnchorsAtTheEndsOfGroups) {
  for (const char* pattern :
       {"^(^a|b$)$", "^a$|^b$", "(a|^b)(c|d$)", "(?:^a)$", "^^a$$", "a{,3}", "{", "a{x}", "(?<name>a)",
        "(?P<name>a)", R"([\b])", R"(\cA)", R"(\u{1F600})", R"(\ud83d\ude00)"})
    EXPECT_EQ(pattern_error(pattern), "") << pattern;
}

class JsonPatternTexts : public testing::WithGrammars {};

// Samples strings of a schema with this pattern, and returns how many of them match it.
TEST_F(JsonPatternTexts, AreJsonAndMatch) {
  const auto compiler = testing::tiny_compiler();
  const Tokenizer tokenizer = *testing::tiny_vocabulary().tokenizer;
  constexpr int32_t kEndToken = 1;
  for (const std::string pattern :
       {R"(^C:\\[a-z]{3}$)", R"(^"[a-z]{2}"$)", R"(^a\nb$)", R"(^[^a-z0-9]{1,4}$)", R"(^.{1,5}$)",
        R"(^[\x00-\x1f"\\/]{1,6}$)", R"(^(\\|"|\t)+x?$)", R"(^\S\s\d\W\D?$)", R"(^(a|b)?[\]\\^-]{2}$)",
        R"(^[^"]$)", R"(^$)", R"(^\u00e9|\x41$)"}) {
    const nlohmann::json schema = {{"type", "string"}, {"pattern", pattern}};
    const auto mask = compiler->compile({GrammarKind::kJsonSchema, schema.dump()});
    std::mt19937 random(1);
    for (int sample = 0; sample < 20; ++sample) {
      const auto one = mask->fork();
      std::vector<int32_t> ids;
      bool ended = false;
      while (!ended && ids.size() < 200) {
        std::vector<uint32_t> words(testing::kVocabulary / 32);
        ASSERT_TRUE(one->fill(words));
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < testing::kVocabulary; ++id)
          if ((words[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0) allowed.push_back(id);
        ASSERT_FALSE(allowed.empty());
        const int32_t id = allowed[random() % allowed.size()];
        one->accept(id);
        ended = id == kEndToken;
        if (!ended) ids.push_back(id);
      }
      const std::string text = tokenizer.decode(ids);
      if (!ended) continue;
      const auto value = nlohmann::json::parse(text, nullptr, false);
      ASSERT_TRUE(value.is_string()) << pattern << " has " << text;
      // std::regex has neither \u{} nor characters of several bytes.
      const auto string = value.get<std::string>();
      if (std::ranges::all_of(string, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
        EXPECT_TRUE(std::regex_search(string, std::regex(pattern))) << pattern << " has " << text;
      }
    }
  }
}

TEST_F(JsonPatternTexts, AreNamesOfProperties) {
  const auto compiler = testing::tiny_compiler();
  const auto rejection = [&](const char* schema) {
    try {
      compiler->compile({GrammarKind::kJsonSchema, schema});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(rejection(R"({"type": "object", "patternProperties": {"^\"a$": {"type": "null"}}})"), "");
  EXPECT_EQ(rejection(R"({"type": "object", "patternProperties": {"a$b": {"type": "null"}}})"),
            R"(json_schema: #: "patternProperties" with $ at character 2 can only be at the end)");
  EXPECT_EQ(rejection(R"({"type": "object", "properties": {"x": {"type": "string", "pattern": "^a$b"}}})"),
            R"(json_schema: #/properties/x: "pattern" with $ at character 3 can only be at the end)");
}

}  // namespace
}  // namespace attend
