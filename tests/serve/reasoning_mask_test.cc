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
  bool allows(int32_t id) const { return (words_[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; }

  const std::vector<int32_t> stop_ids_ = {1, 70, 1 << 20};  // the last one is not in the vocabulary
  const Tokenizer tokenizer_ = Tokenizer::from_path(ATTEND_SOURCE_DIR "/models/attend-tiny");
  std::vector<uint32_t> words_ = std::vector<uint32_t>(66);
  const std::shared_ptr<FiveMask> inner_ = std::make_shared<FiveMask>();
};

TEST_F(ReasoningMaskTest, AllowsAllTokensButTheEndUntilTheClosingTag) {
  const auto mask =
      make_reasoning_mask(parse_reasoning_format("qwen3"), inner_, tokenizer_, /*inside=*/true, stop_ids_);
  const std::vector<int32_t> ids = tokenizer_.encode("thoughts</think>", false);
  ASSERT_GT(ids.size(), 3u) << "the tag is several tokens here";
  for (const int32_t id : ids) {
    ASSERT_TRUE(mask->fill(words_));
    for (int32_t any = 0; any < 2112; ++any) EXPECT_EQ(allows(any), any != 1 && any != 70) << any;
    mask->accept(id);
  }
  EXPECT_EQ(inner_->num_accepted, 0);
  EXPECT_TRUE(mask->fill(words_));
  mask->accept(5);
  EXPECT_EQ(inner_->num_accepted, 1);
  EXPECT_TRUE(mask->fork()->fill(words_)) << "a fork starts a new reasoning part";
  EXPECT_TRUE(allows(6));
  EXPECT_FALSE(allows(70));
}

TEST_F(ReasoningMaskTest, AllowsTheEndAfterACallInTheReasoning) {
  const auto allows_end = [&](const std::string& reasoning) {
    const auto mask = make_reasoning_mask(parse_reasoning_format("qwen3"), inner_, tokenizer_,
                                          /*inside=*/true, stop_ids_, parse_tool_format("qwen25").opens);
    for (const int32_t id : tokenizer_.encode(reasoning, false)) mask->accept(id);
    return !mask->fill(words_);
  };
  EXPECT_TRUE(allows_end("sun\n  <tool_call>\n{\"name\""));
  EXPECT_TRUE(allows_end("<tool_call>"));
  EXPECT_FALSE(allows_end("sun <tool_call> rain"));
  for (int i = 0; i < 40; ++i)
    EXPECT_FALSE(allows_end("sun rain <tool_call>" + std::string(static_cast<size_t>(i), '.'))) << i;
  EXPECT_FALSE(allows_end("sun\n<tool"));
}

TEST_F(ReasoningMaskTest, ConstrainsAnswersWithoutReasoningImmediately) {
  const auto mask =
      make_reasoning_mask(parse_reasoning_format("qwen3"), inner_, tokenizer_, /*inside=*/false, stop_ids_);
  EXPECT_TRUE(mask->fill(words_));
  EXPECT_EQ(words_[0], 1u << 5);
  mask->accept(5);
  EXPECT_EQ(inner_->num_accepted, 1);
}

// Allows tokens by the number of accepted ones.
class ChangingMask final : public TokenMask {
 public:
  bool fill(std::span<uint32_t> words) override { return fill(num_accepted_, words); }
  void accept(int32_t) override { ++num_accepted_; }
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<ChangingMask>(); }
  size_t draft(std::span<const int32_t> tokens) override { return tokens.size(); }
  bool fill_after(size_t num_tokens, std::span<uint32_t> words) override {
    return fill(num_accepted_ + num_tokens, words);
  }

 private:
  static bool fill(size_t num_accepted, std::span<uint32_t> words) {
    std::ranges::fill(words, static_cast<uint32_t>(7 + num_accepted));
    return num_accepted % 5 != 4;
  }
  size_t num_accepted_ = 0;
};

// Drafts of any length at any position of an answer, inside its reasoning, across its end, and with openers.
TEST_F(ReasoningMaskTest, MasksAfterDraftedTokensEqualThoseAfterAcceptedOnes) {
  int num_compared = 0, num_after_end = 0;
  const auto fill = [](TokenMask& mask, size_t num_ahead) {
    std::vector<uint32_t> words(66);
    if (!(num_ahead == 0 ? mask.fill(words) : mask.fill_after(num_ahead, words))) words.clear();
    return words;
  };
  const auto check = [&](const std::shared_ptr<TokenMask>& start, std::string_view text) {
    SCOPED_TRACE(text);
    const std::vector<int32_t> ids = tokenizer_.encode(text, false);
    const std::shared_ptr<TokenMask> plain = start->fork();
    std::vector<std::vector<uint32_t>> masks;
    for (const int32_t id : ids) {
      masks.push_back(fill(*plain, 0));
      plain->accept(id);
    }
    masks.push_back(fill(*plain, 0));
    for (size_t length = 1; length <= 6; ++length) {
      const std::shared_ptr<TokenMask> drafting = start->fork();
      for (size_t at = 0; at + length <= ids.size();) {
        ASSERT_EQ(fill(*drafting, 0), masks[at]);
        const size_t kept = drafting->draft(std::span(ids).subspan(at, length));
        ASSERT_LE(kept, length);
        for (size_t num = 1; num <= kept; ++num) ASSERT_EQ(fill(*drafting, num), masks[at + num]) << at;
        num_compared += static_cast<int>(kept);
        if (at > ids.size() / 2) num_after_end += static_cast<int>(kept);
        const size_t num_accepted = std::min(kept + 1, ids.size() - at);
        for (size_t i = 0; i < num_accepted; ++i) drafting->accept(ids[at++]);
      }
    }
  };
  const auto inner = std::make_shared<ChangingMask>();
  const Texts opens = parse_tool_format("qwen25").opens;
  const ReasoningFormat& format = parse_reasoning_format("qwen3");
  for (const char* text : {"thoughts</think>the answer is long enough", "a > b</thin</think>{\"sun\": 42}",
                           "sun\n <tool_call> rain</think> and more text after it", "no end at all >"})
    for (const bool has_opens : {false, true})
      check(make_reasoning_mask(format, inner, tokenizer_, /*inside=*/true, stop_ids_,
                                has_opens ? opens : Texts{}),
            text);
  check(make_reasoning_mask(format, inner, tokenizer_, /*inside=*/false, stop_ids_), "an answer at once");
  // The budget's last tokens are the forced ones.
  for (const int max_tokens : {1, 3, 100})
    for (const bool has_mask : {false, true})
      check(
          make_reasoning_budget(format, has_mask ? inner : nullptr, tokenizer_, /*inside=*/true, max_tokens),
          "scout coffee</think>the answer is long enough");
  check(make_reasoning_budget(format, inner, tokenizer_, /*inside=*/false, 2),
        "<think>one two</think>answer");
  check(make_reasoning_budget(parse_reasoning_format("gpt-oss"), nullptr, tokenizer_, /*inside=*/false, 3),
        "<|channel|>analysis<|message|>one two<|end|>answer");
  EXPECT_GT(num_compared, 300) << "the test checks too little";
  EXPECT_GT(num_after_end, 100) << "the test checks too little";
}

class ReasoningBudgetTest : public ReasoningMaskTest {
 protected:
  std::shared_ptr<TokenMask> budget(bool inside, int max_tokens, std::string_view format = "qwen3") const {
    return make_reasoning_budget(parse_reasoning_format(format), inner_, tokenizer_, inside, max_tokens);
  }
  // Returns the tokens that a greedy model writes that prefers the tokens of `text`.
  std::string generate(TokenMask& mask, std::string_view text, int num_tokens) {
    const std::vector<int32_t> wanted = tokenizer_.encode(text, false);
    std::vector<int32_t> ids;
    for (int i = 0; i < num_tokens; ++i) {
      int32_t id = wanted.at(static_cast<size_t>(i) % wanted.size());
      if (mask.fill(words_) && (words_[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0)
        for (id = 0; (words_[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0;) ++id;
      ids.push_back(id);
      mask.accept(id);
    }
    return tokenizer_.decode(ids, false);
  }
};

TEST_F(ReasoningBudgetTest, ClosesTheReasoningAfterItsTokens) {
  const auto mask = make_reasoning_budget(parse_reasoning_format("qwen3"), nullptr, tokenizer_, true, 3);
  const std::string close = "</think>";
  const auto num_close = static_cast<int>(tokenizer_.encode(close, false).size());
  const std::string all = generate(*mask, " scout coffee writer pea", 3 + num_close);
  EXPECT_TRUE(all.ends_with(close)) << all;
  EXPECT_EQ(all, " scout coffee writer" + close);
  EXPECT_FALSE(mask->fill(words_)) << "the answer is free";
  EXPECT_EQ(generate(*mask->fork(), " scout coffee writer pea", 3 + num_close), all);
}

// A regex may contain reasoning that is longer than the budget.
TEST_F(ReasoningBudgetTest, DoesNotForceWhatTheGrammarExcludes) {
  const auto mask = budget(/*inside=*/true, 1);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(mask->fill(words_));
    EXPECT_EQ(words_[0], 1u << 5);
    mask->accept(5);
  }
}

TEST_F(ReasoningBudgetTest, CountsOnlyReasoning) {
  const auto text = budget(/*inside=*/false, 2);
  generate(*text, " scout", 9);
  EXPECT_TRUE(text->fill(words_));
  EXPECT_EQ(words_[0], 1u << 5) << "the inner mask decides";
  EXPECT_EQ(inner_->num_accepted, 9);
  const auto short_one =
      make_reasoning_budget(parse_reasoning_format("qwen3"), nullptr, tokenizer_, true, 90);
  const std::vector<int32_t> ids = tokenizer_.encode(" pea</think> scout", false);
  for (const int32_t id : ids) short_one->accept(id);
  for (int i = 0; i < 99; ++i) short_one->accept(ids.front());
  EXPECT_FALSE(short_one->fill(words_)) << "the model closed the tag itself";
}

TEST_F(ReasoningBudgetTest, FindsATagThatTheModelOpens) {
  const auto mask = make_reasoning_budget(parse_reasoning_format("qwen3"), nullptr, tokenizer_, false, 2);
  for (const int32_t id : tokenizer_.encode("<think> pea scout", false)) mask->accept(id);
  EXPECT_TRUE(mask->fill(words_));
  const auto channels =
      make_reasoning_budget(parse_reasoning_format("gpt-oss"), nullptr, tokenizer_, false, 2);
  for (const int32_t id :
       tokenizer_.encode("<|channel|>final<|message|> pea<|channel|>analysis<|message|> pea scout", false))
    channels->accept(id);
  EXPECT_TRUE(channels->fill(words_)) << "a later message may be reasoning";
}

}  // namespace
}  // namespace attend::serve
