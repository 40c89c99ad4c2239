#include "attend/engine/step/logits_processor.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace attend {
namespace {

using kernels::LogitEdit;

std::map<int32_t, LogitEdit> by_token(const LogitsProcessor& logits_processor) {
  std::map<int32_t, LogitEdit> edits;
  for (const LogitEdit& edit : logits_processor.edits())
    EXPECT_TRUE(edits.emplace(edit.token_id, edit).second) << "token " << edit.token_id << " occurs twice";
  return edits;
}

constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST(LogitsProcessor, IsNeededOnlyForParametersThatChangeLogits) {
  EXPECT_FALSE(LogitsProcessor::needed({}));
  EXPECT_FALSE(LogitsProcessor::needed({.temperature = 1.0f, .stop_token_ids = {5}, .logprobs = 3}));
  EXPECT_TRUE(LogitsProcessor::needed({.repetition_penalty = 1.1f}));
  EXPECT_TRUE(LogitsProcessor::needed({.frequency_penalty = 0.1f}));
  EXPECT_TRUE(LogitsProcessor::needed({.presence_penalty = -0.1f}));
  EXPECT_TRUE(LogitsProcessor::needed({.logit_bias = {{1, 1.0f}}}));
  EXPECT_TRUE(LogitsProcessor::needed({.min_tokens = 1}));
}

TEST(LogitsProcessor, CountsOnlyTheOutputForFrequencyAndPresence) {
  const std::vector<int32_t> prompt = {1, 2, 2};
  LogitsProcessor logits_processor({.frequency_penalty = 0.5f, .presence_penalty = 0.25f}, prompt, {});
  EXPECT_TRUE(logits_processor.edits().empty());
  logits_processor.accept(2);
  logits_processor.accept(3);
  logits_processor.accept(2);
  const auto edits = by_token(logits_processor);
  ASSERT_EQ(edits.size(), 2u);
  EXPECT_EQ(edits.at(2).offset, -(2 * 0.5f + 0.25f));
  EXPECT_EQ(edits.at(3).offset, -(0.5f + 0.25f));
  EXPECT_EQ(edits.at(2).repetition, 1.0f);
}

TEST(LogitsProcessor, CountsPromptAndOutputForRepetition) {
  const std::vector<int32_t> prompt = {1, 2, 2};
  LogitsProcessor logits_processor({.repetition_penalty = 1.3f}, prompt, {});
  logits_processor.accept(9);
  const auto edits = by_token(logits_processor);
  ASSERT_EQ(edits.size(), 3u);
  for (const int32_t token : {1, 2, 9}) EXPECT_EQ(edits.at(token).repetition, 1.3f) << token;
  EXPECT_EQ(edits.at(9).offset, 0.0f);
}

TEST(LogitsProcessor, AddsBiasesToPenalties) {
  LogitsProcessor logits_processor({.presence_penalty = 0.5f, .logit_bias = {{4, 2.0f}, {6, -100.0f}}}, {},
                                   {});
  logits_processor.accept(4);
  const auto edits = by_token(logits_processor);
  EXPECT_EQ(edits.at(4).offset, 1.5f);
  EXPECT_EQ(edits.at(6).offset, -100.0f);
}

TEST(LogitsProcessor, BansStopTokensBeforeMinTokens) {
  const std::vector<int32_t> stops = {7, 8, 7};
  LogitsProcessor logits_processor({.logit_bias = {{7, 3.0f}}, .min_tokens = 2}, {}, stops);
  EXPECT_EQ(by_token(logits_processor).at(7).offset, kNever);
  EXPECT_EQ(by_token(logits_processor).at(8).offset, kNever);
  logits_processor.accept(1);
  EXPECT_EQ(by_token(logits_processor).at(7).offset, kNever);
  logits_processor.accept(1);
  EXPECT_EQ(by_token(logits_processor).at(7).offset, 3.0f);
  EXPECT_EQ(by_token(logits_processor).at(8).offset, 0.0f);
}

}  // namespace
}  // namespace attend
