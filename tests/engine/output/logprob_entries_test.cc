// Entries of tokens join to the text of an answer.
#include "attend/engine/output/logprob_entries.h"

#include <gtest/gtest.h>

#include "attend/text/tokenizer/utf8.h"

namespace attend {
namespace {

const Tokenizer& llama2_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::from_path(ATTEND_SOURCE_DIR "/tests/data/tokenizers/llama2");
  return tokenizer;
}

std::vector<int32_t> llama2_ids(const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) ids.push_back(llama2_tokenizer().token_id(token).value());
  return ids;
}

// Returns the part of `text` that each entry covers.
std::vector<std::string> covered_parts(const std::vector<ShownToken>& shown, std::string_view text) {
  std::vector<std::string> parts;
  for (const ShownToken& token : shown) {
    std::string part;
    for (size_t n = token.num_chars.value_or(tokenizer::num_chars(token.text)); n > 0 && !text.empty(); --n) {
      do {
        part += text.front();
        text.remove_prefix(1);
      } while (!text.empty() && (text.front() & 0xc0) == 0x80);
    }
    parts.push_back(part);
  }
  return parts;
}

std::vector<ShownToken> entries_of(const std::vector<int32_t>& prompt, std::string_view echo) {
  std::vector<ShownToken> shown;
  const std::vector<float> logprobs(prompt.size() - 1, -1.0f);
  LogprobEntries(&llama2_tokenizer(), true)
      .add_prompt(prompt, {.logprobs = logprobs, .tops = {}}, echo, shown);
  return shown;
}

TEST(LogprobEntries, CoverTheEchoOfAPrompt) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(covered_parts(entries_of(llama2_ids({"<s>", "▁the", "▁pool"}), "the pool"), "the pool"),
            (Parts{"", "the", " pool"}));
  EXPECT_EQ(covered_parts(entries_of(llama2_ids({"<s>", "▁the", "</s>"}), "the</s>"), "the</s>"),
            (Parts{"", "the", "</s>"}))
      << "the client spelled a special token";
  EXPECT_EQ(covered_parts(entries_of(llama2_ids({"▁the"}), "THE"), "THE"), Parts{"THE"}) << "normalized";
  EXPECT_EQ(covered_parts(entries_of(llama2_ids({"<s>", "<0xE4>", "<0xB8>", "<0xAD>"}), "中"), "中"),
            (Parts{"", "", "", "中"}));
}

TEST(LogprobEntries, OfAPromptOfOneTokenHaveNoLogprob) {
  const std::vector<ShownToken> shown = entries_of(llama2_ids({"▁the"}), "the");
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].logprob, std::nullopt);
  EXPECT_EQ(shown[0].text, "the");
}

TEST(LogprobEntries, AddTheRestOfAnIncompleteCharacterAtTheEnd) {
  LogprobEntries entries(&llama2_tokenizer(), true);
  entries.set_prompt(llama2_ids({"▁the"}));
  std::vector<ShownToken> shown;
  const std::vector<float> logprobs = {-1.0f, -2.0f};
  entries.add(llama2_ids({"▁pool", "<0xE4>"}), {.logprobs = logprobs, .tops = {}}, shown);
  entries.end(shown);
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].text, " pool");
  EXPECT_EQ(shown[1].text, "\uFFFD");
  EXPECT_EQ(shown[1].bytes, "\xE4");
}

}  // namespace
}  // namespace attend
