// Texts and bytes of single tokens.
#include "attend/text/tokenizer/decoding/token_speller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/text/tokenizer/golden.h"

namespace attend {
namespace {

using testing::golden_folder;

struct Joined {
  std::string text, bytes;
};

Joined join(TokenSpeller& speller, std::span<const int32_t> ids) {
  Joined joined;
  for (const int32_t id : ids) {
    const TokenSpelling next = speller.spell(id);
    const TokenSpelling spelling = speller.push(id);
    EXPECT_EQ(next.text, spelling.text);
    EXPECT_EQ(next.bytes, spelling.bytes);
    EXPECT_TRUE(tokenizer::is_valid_utf8(spelling.text));
    if (!spelling.is_in_text) continue;
    joined.text += spelling.text;
    joined.bytes += spelling.bytes;
  }
  joined.text += speller.flush();
  return joined;
}

class Spelling : public ::testing::TestWithParam<std::string> {
 protected:
  Tokenizer tokenizer_ = Tokenizer::from_path(golden_folder(GetParam()));
};

TEST_P(Spelling, JoinsToTheText) {
  for (const testing::GoldenCase& one : testing::read_golden(GetParam()).cases) {
    if (!one.encodes) continue;
    for (const bool skip : {true, false}) {
      SCOPED_TRACE(::testing::PrintToString(one.ids));
      TokenSpeller speller(tokenizer_, skip);
      const Joined joined = join(speller, one.ids);
      EXPECT_EQ(joined.text, skip ? one.skip : one.keep);
      EXPECT_EQ(joined.bytes, joined.text) << "the text is valid";
    }
  }
}

TEST_P(Spelling, JoinsToTheTextAfterAPrompt) {
  for (const testing::GoldenCase& one : testing::read_golden(GetParam()).cases) {
    if (!one.encodes || one.ids.size() > 40) continue;
    for (size_t i = 0; i <= one.ids.size(); ++i) {
      const auto prompt = std::span(one.ids).first(i), added = std::span(one.ids).subspan(i);
      TokenSpeller speller(tokenizer_);
      speller.follow(prompt);
      EXPECT_EQ(tokenizer_.decode_prefix(prompt) + join(speller, added).text, one.skip);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Spelling, ::testing::ValuesIn(testing::golden_layouts()),
                         [](const auto& layout) { return layout.param; });

TEST(TokenSpeller, HasTheBytesOfPartsOfACharacter) {
  for (const auto& [layout, tokens] :
       {std::pair<std::string, std::vector<std::string>>{"gpt2", {"a", "ä", "¸", "Ń"}},
        {"llama2", {"a", "<0xE4>", "<0xB8>", "<0xAD>"}}}) {
    const Tokenizer tokenizer = Tokenizer::from_path(golden_folder(layout));
    TokenSpeller speller(tokenizer);
    std::vector<std::string> texts, bytes;
    for (const std::string& token : tokens) {
      const TokenSpelling spelling = speller.push(tokenizer.token_id(token).value());
      texts.push_back(spelling.text);
      bytes.push_back(spelling.bytes);
    }
    EXPECT_THAT(texts, ::testing::ElementsAre("a", "", "", "中"));
    EXPECT_THAT(bytes, ::testing::ElementsAre("a", "\xE4", "\xB8", "\xAD"));
    EXPECT_EQ(speller.flush(), "");
  }
}

// With byte fallback all bytes of an invalid run become U+FFFD.
TEST(TokenSpeller, SpellsInvalidBytesLikeTheDecoder) {
  std::mt19937 random(3);
  for (const char* layout : {"llama2", "gpt2"}) {
    const Tokenizer tokenizer = Tokenizer::from_path(golden_folder(layout));
    for (int i = 0; i < 200; ++i) {
      std::vector<int32_t> ids = {tokenizer.token_id("a").value()};
      // Bytes from 0x80 on: no valid character precedes an invalid one in a run of two.
      for (size_t n = random() % 3; n > 0; --n)
        ids.push_back(layout[0] == 'l'
                          ? tokenizer.token_id("<0x80>").value() + static_cast<int32_t>(random() % 128)
                          : static_cast<int32_t>(random() % 300));
      ids.push_back(tokenizer.token_id("a").value());
      TokenSpeller speller(tokenizer);
      EXPECT_EQ(join(speller, ids).text, tokenizer.decode(ids)) << ::testing::PrintToString(ids);
    }
  }
}

TEST(TokenSpeller, SpellsTokensThatTheTextOmits) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  const TokenSpelling spelling = TokenSpeller(tokenizer).spell(tokenizer.token_id("<s>").value());
  EXPECT_EQ(spelling.text, "<s>");
  EXPECT_FALSE(spelling.is_in_text);
  EXPECT_TRUE(TokenSpeller(tokenizer, false).spell(tokenizer.token_id("<s>").value()).is_in_text);
  EXPECT_EQ(TokenSpeller(tokenizer).spell(1'000'000).text, "");
}

}  // namespace
}  // namespace attend
