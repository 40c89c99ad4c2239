// Text that follows a prompt: decode(prompt + new) without decode(prompt).
#include <gtest/gtest.h>

#include <random>

#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/utf8.h"
#include "tests/text/tokenizer/golden.h"

namespace attend {
namespace {

using testing::golden_folder;
using testing::golden_layouts;

std::string text_after(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                       std::span<const int32_t> ids, bool after_prefix, bool skip = true) {
  StreamDecoder decoder(tokenizer, skip);
  decoder.set_prompt(prompt, after_prefix);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

// Returns `text` without the characters that it has in common with `prompt` at the start.
std::string without_prefix(const std::string& text, const std::string& prompt) {
  size_t same = 0;
  while (same < text.size() && same < prompt.size()) {
    const size_t bytes = tokenizer::char_bytes(text[same]);
    if (text.compare(same, bytes, prompt, same, bytes) != 0) break;
    same += bytes;
  }
  return text.substr(same);
}

std::vector<int32_t> ids_of_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) ids.push_back(tokenizer.token_id(token).value());
  return ids;
}

class PromptEnd : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_all_splits(const std::vector<int32_t>& ids, bool skip) {
    const std::string all = tokenizer_.decode(ids, skip);
    for (size_t i = 0; i <= ids.size(); ++i) {
      SCOPED_TRACE(::testing::PrintToString(ids) + " after " + std::to_string(i));
      const auto prompt = std::span(ids).first(i), added = std::span(ids).subspan(i);
      EXPECT_EQ(text_after(tokenizer_, prompt, added, false, skip),
                without_prefix(all, tokenizer_.decode(prompt, skip)));
      const std::string shown = tokenizer_.decode_prefix(prompt, skip);
      if (!all.starts_with(shown)) continue;
      EXPECT_EQ(shown + text_after(tokenizer_, prompt, added, true, skip), all);
    }
  }

  Tokenizer tokenizer_ = Tokenizer::from_path(golden_folder(GetParam()));
};

// The library's texts of complete sequences are in the goldens (golden_test.cc).
TEST_P(PromptEnd, IsFollowedByTheRestOfTheText) {
  for (const testing::GoldenCase& one : testing::read_golden(GetParam()).cases) {
    if (one.ids.size() > 60) continue;
    expect_all_splits(one.ids, true);
    expect_all_splits(one.ids, false);
  }
}

TEST_P(PromptEnd, IsFollowedByTheRestOfAnySequence) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int32_t> any_id(0, tokenizer_.vocab_size() - 1);
  std::uniform_int_distribution<int32_t> first_id(0, std::min(300, tokenizer_.vocab_size() - 1));
  for (int i = 0; i < 60; ++i) {
    std::vector<int32_t> ids(random() % 40);
    for (int32_t& id : ids) id = i % 2 == 0 ? any_id(random) : first_id(random);  // the first ones are bytes
    expect_all_splits(ids, i % 3 == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PromptEnd, ::testing::ValuesIn(golden_layouts()),
                         [](const auto& layout) { return layout.param; });

TEST(PromptEndOfLlama2, KeepsTheSpacesOfTheFirstNewToken) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  const std::vector<int32_t> prompt = tokenizer.encode("a");
  EXPECT_EQ(text_after(tokenizer, prompt, ids_of_tokens(tokenizer, {"▁", "▁", "a"}), false), "  a");
  EXPECT_EQ(
      text_after(tokenizer, ids_of_tokens(tokenizer, {"<s>"}), ids_of_tokens(tokenizer, {"▁", "a"}), false),
      "a")
      << "nothing is before it";
}

TEST(PromptEndOfLlama2, MayBeWithinACharacter) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  const std::vector<int32_t> prompt = ids_of_tokens(tokenizer, {"a", "<0xE4>", "<0xB8>"});
  const std::vector<int32_t> rest = ids_of_tokens(tokenizer, {"<0xAD>", "a"});
  EXPECT_EQ(text_after(tokenizer, prompt, rest, false), "中a");
  EXPECT_EQ(tokenizer.decode_prefix(prompt), "a");
  // The character turns out to be invalid: decode(prompt) has its U+FFFD, decode_prefix(prompt) has not.
  EXPECT_EQ(text_after(tokenizer, prompt, ids_of_tokens(tokenizer, {"a"}), false), "a");
  EXPECT_EQ(text_after(tokenizer, prompt, ids_of_tokens(tokenizer, {"a"}), true), "\uFFFD\uFFFDa");
}

// The context is bounded, and cut between characters.
TEST(PromptEndOfLlama2, HandlesLongRunsOfByteTokens) {
  const Tokenizer tokenizer = Tokenizer::from_path(golden_folder("llama2"));
  for (const size_t num_chars : {50, 100, 1000}) {
    std::vector<std::string> tokens;
    for (size_t i = 0; i < num_chars; ++i) tokens.insert(tokens.end(), {"<0xE4>", "<0xB8>", "<0xAD>"});
    tokens.insert(tokens.end(), {"<0xE4>", "<0xB8>"});
    EXPECT_EQ(
        text_after(tokenizer, ids_of_tokens(tokenizer, tokens), ids_of_tokens(tokenizer, {"<0xAD>"}), true),
        "中");
  }
}

}  // namespace
}  // namespace attend
