// Texts and bytes of single tokens.

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

Joined join(TokenTextDecoder& token_decoder, std::span<const int32_t> ids) {
  Joined joined;
  for (const int32_t id : ids) {
    const TokenText next = token_decoder.decode(id);
    const TokenText token_text = token_decoder.push(id);
    EXPECT_EQ(next.text, token_text.text);
    EXPECT_EQ(next.bytes, token_text.bytes);
    EXPECT_TRUE(tokenizer::is_valid_utf8(token_text.text));
    if (!token_text.is_in_text) continue;
    joined.text += token_text.text;
    joined.bytes += token_text.bytes;
  }
  joined.text += token_decoder.flush();
  return joined;
}

class TokenTexts : public ::testing::TestWithParam<std::string> {
 protected:
  Tokenizer tokenizer_ = Tokenizer::from_path(golden_folder(GetParam()));
};

TEST_P(TokenTexts, ConcatenateToTheDecodedText) {
  for (const testing::GoldenCase& one : testing::read_golden(GetParam()).cases) {
    if (!one.encodes) continue;
    for (const bool skip : {true, false}) {
      SCOPED_TRACE(::testing::PrintToString(one.ids));
      TokenTextDecoder token_decoder(tokenizer_, skip);
      const Joined joined = join(token_decoder, one.ids);
      EXPECT_EQ(joined.text, skip ? one.skip : one.keep);
      EXPECT_EQ(joined.bytes, joined.text) << "the text is valid";
    }
  }
}

TEST_P(TokenTexts, ConcatenateToTheDecodedTextAfterAPrompt) {
  for (const testing::GoldenCase& one : testing::read_golden(GetParam()).cases) {
    if (!one.encodes || one.ids.size() > 40) continue;
    for (size_t i = 0; i <= one.ids.size(); ++i) {
      const auto prompt = std::span(one.ids).first(i), added = std::span(one.ids).subspan(i);
      TokenTextDecoder token_decoder(tokenizer_);
      token_decoder.set_prompt(prompt);
      EXPECT_EQ(tokenizer_.decode_prefix(prompt) + join(token_decoder, added).text, one.skip);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, TokenTexts, ::testing::ValuesIn(testing::golden_layouts()),
                         [](const auto& layout) { return layout.param; });

TEST(TokenTextDecoder, ReturnsTheBytesOfPartsOfACharacter) {
  for (const auto& [layout, tokens] :
       {std::pair<std::string, std::vector<std::string>>{"gpt2", {"a", "ä", "¸", "Ń"}},
        {"llama2", {"a", "<0xE4>", "<0xB8>", "<0xAD>"}}}) {
    const Tokenizer tokenizer = Tokenizer::from_path(golden_folder(layout));
    TokenTextDecoder token_decoder(tokenizer);
    std::vector<std::string> texts, bytes;
    for (const std::string& token : tokens) {
      const TokenText token_text = token_decoder.push(tokenizer.token_id(token).value());
      texts.push_back(token_text.text);
      bytes.push_back(token_text.bytes);
    }
    EXPECT_THAT(texts, ::testing::ElementsAre("a", "", "", "中"));
    EXPECT_THAT(bytes, ::testing::ElementsAre("a", "\xE4", "\xB8", "\xAD"));
    EXPECT_EQ(token_decoder.flush(), "");
  }
}

// With byte fallback all bytes of an invalid run become U+FFFD.
TEST(TokenTextDecoder, DecodesInvalidBytesLikeTheTokenizer) {
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
      TokenTextDecoder token_decoder(tokenizer);
      EXPECT_EQ(join(token_decoder, ids).text, tokenizer.decode(ids)) << ::testing::PrintToString(ids);
    }
  }
}

TEST(TokenTextDecoder, ReturnsNamesOfTokensThatTheTextOmits) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  const TokenText token_text = TokenTextDecoder(tokenizer).decode(tokenizer.token_id("<s>").value());
  EXPECT_EQ(token_text.text, "<s>");
  EXPECT_FALSE(token_text.is_in_text);
  EXPECT_TRUE(TokenTextDecoder(tokenizer, false).decode(tokenizer.token_id("<s>").value()).is_in_text);
  EXPECT_EQ(TokenTextDecoder(tokenizer).decode(1'000'000).text, "");
}

}  // namespace
}  // namespace attend
