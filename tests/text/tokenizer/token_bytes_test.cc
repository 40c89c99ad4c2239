// Concatenated bytes of tokens equal the decoded text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/text/tokenizer/tokenizer.h"
#include "tests/text/tokenizer/golden.h"

namespace attend {
namespace {

using testing::golden_folder;

class TokenBytes : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenBytes, ConcatenateToTheDecodedText) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder(GetParam()));
  const std::vector<std::string> bytes = tokenizer.token_bytes();
  ASSERT_EQ(std::ssize(bytes), tokenizer.vocab_size());
  for (const std::string text : {"Hello there, world", "naïve café – 12345", "日本語 🙂🙃 x",
                                 "  two  spaces\n\n\tend", "{\"a\": [1, -2.5e3, null]}"}) {
    const std::vector<int32_t> ids = tokenizer.encode(text, /*add_special_tokens=*/false);
    std::string joined;
    bool special = false;
    for (const int32_t id : ids) {
      joined += bytes[static_cast<size_t>(id)];
      special |= tokenizer.is_special(id);
    }
    if (special) continue;
    // The first token may start with a space that encode() added before the text.
    const std::string decoded = tokenizer.decode(ids);
    EXPECT_TRUE(joined == decoded || joined == ' ' + decoded) << joined << " of " << decoded;
  }
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    EXPECT_EQ(bytes[static_cast<size_t>(id)], "") << tokenizer.token(id);
  }
}

// WordPiece is excluded: its models do not generate text.
INSTANTIATE_TEST_SUITE_P(All, TokenBytes,
                         ::testing::Values("gpt2", "llama3", "qwen2", "o200k", "deepseek", "llama2",
                                           "mistral", "gemma", "metaspace", "roberta"));

}  // namespace
}  // namespace attend
