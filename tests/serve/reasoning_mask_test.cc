// Grammar masks that apply only after the reasoning part of an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attend/serve/formats/reasoning.h"

namespace attend::serve {
namespace {

// Allows only token 5 and counts accepted tokens.
class FiveMask final : public TokenMask {
 public:
  bool fill(std::span<uint32_t> words) override {
    std::ranges::fill(words, 0u);
    words[0] = 1u << 5;
    return true;
  }
  void accept(int32_t) override { ++num_accepted; }
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<FiveMask>(); }
  int num_accepted = 0;
};

class ReasoningMaskTest : public ::testing::Test {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny");
  std::vector<uint32_t> words_ = std::vector<uint32_t>(66);
  const std::shared_ptr<FiveMask> inner_ = std::make_shared<FiveMask>();
};

TEST_F(ReasoningMaskTest, AllowsAllTokensUntilTheClosingTag) {
  const auto mask = make_reasoning_mask(parse_reasoning_format("qwen3"), inner_, tokenizer_, /*inside=*/true);
  const std::vector<int32_t> ids = tokenizer_.encode("thoughts</think>", false);
  ASSERT_GT(ids.size(), 3u) << "the tag is several tokens here";
  for (const int32_t id : ids) {
    EXPECT_FALSE(mask->fill(words_));
    mask->accept(id);
  }
  EXPECT_EQ(inner_->num_accepted, 0);
  EXPECT_TRUE(mask->fill(words_));
  mask->accept(5);
  EXPECT_EQ(inner_->num_accepted, 1);
  EXPECT_FALSE(mask->fork()->fill(words_)) << "a fork starts a new reasoning part";
}

TEST_F(ReasoningMaskTest, ConstrainsAnswersWithoutReasoningImmediately) {
  const auto mask =
      make_reasoning_mask(parse_reasoning_format("qwen3"), inner_, tokenizer_, /*inside=*/false);
  EXPECT_TRUE(mask->fill(words_));
  EXPECT_EQ(words_[0], 1u << 5);
  mask->accept(5);
  EXPECT_EQ(inner_->num_accepted, 1);
}

}  // namespace
}  // namespace attend::serve
