// Random texts that the grammar of a format allows are calls that its parser reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "attend/serve/formats/tool_format.h"
#include "tests/grammar/grammar_folder.h"

namespace attend::serve::tool_grammars_test {
namespace {

class ToolGrammarsTest : public attend::testing::WithGrammars {};

constexpr int32_t kEnd = 1;  // </s> of the bundled model
constexpr int kMaxTokens = 1200;

// Samples allowed tokens at random up to the end of the grammar. Returns no value for a text that is too
// long.
std::optional<std::string> sample(TokenMask& mask, const Tokenizer& tokenizer, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  while (static_cast<int>(ids.size()) < kMaxTokens) {
    std::vector<uint32_t> words(attend::testing::kVocabulary / 32);
    if (!mask.fill(words)) return std::nullopt;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < attend::testing::kVocabulary; ++id)
      if (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
    if (allowed.empty()) return std::nullopt;
    const bool ends = std::ranges::find(allowed, kEnd) != allowed.end();
    const int32_t id = ends ? kEnd : allowed[random() % allowed.size()];
    if (id == kEnd) return tokenizer.decode(ids, /*skip_special_tokens=*/false);
    mask.accept(id);
    ids.push_back(id);
  }
  return std::nullopt;
}

TEST_F(ToolGrammarsTest, AllowTextsThatTheParsersRead) {
  const std::vector<Tool> tools = {{"get_weather", Json::parse(R"({"type": "object", "properties": {
    "city": {"type": "string", "enum": ["Oslo", "Rome"]}, "deep": {"type": "boolean"}}, "required": ["city", "deep"],
    "additionalProperties": false})")}};
  const Tokenizer tokenizer = *attend::testing::tiny_vocabulary().tokenizer;
  const auto compiler = attend::testing::tiny_compiler();
  ToolChoice choice;
  choice.kind = ToolChoice::Kind::kNamed;
  choice.name = "get_weather";
  for (const ToolFormat& format : tool_formats()) {
    SCOPED_TRACE(format.name());
    const std::shared_ptr<TokenMask> mask = compiler->compile(tool_grammar(format, tools, choice));
    int num_read = 0;
    for (uint32_t seed = 0; seed < 8; ++seed) {
      const std::optional<std::string> text = sample(*mask->fork(), tokenizer, seed);
      if (!text) continue;
      ++num_read;
      AnswerParts parts;
      const auto parser = make_call_parser(format, tools);
      parser->push(*text, parts);
      parser->finish(parts, /*complete=*/true);
      ASSERT_EQ(parts.all().size(), 2u) << *text;
      EXPECT_EQ(parts.all()[0].text, "get_weather");
      const Json arguments = Json::parse(parts.all()[1].text, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(arguments.is_object()) << *text << ": " << parts.all()[1].text;
      const bool follows_schema =
          format.arguments == ToolFormat::Arguments::kJson || !format.tags.grammar.empty();
      if (!follows_schema) continue;
      EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome") << *text;
      EXPECT_TRUE(arguments["deep"].is_boolean()) << *text;
    }
    // Only restricted arguments are short.
    if (format.arguments == ToolFormat::Arguments::kJson) {
      EXPECT_GT(num_read, 0);
    }
  }
}

}  // namespace
}  // namespace attend::serve::tool_grammars_test
