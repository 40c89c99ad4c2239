// ModelExecutor without an engine: the test allocates rows and slots.
#include "attend/exec/model_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/exec/tiny_executor.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::tiny_config;
using testing::FloatNear;
using testing::Pointwise;

class ModelExecutorTest : public testing::Test {
 protected:
  ModelExecutorTest() : rows_(test::kMaxReqs, test::kContextLen) {
    for (RequestRow& row : request_) {
      row = *rows_.allocate();
      std::vector<TokenSlot> slots;
      for (int i = 0; i < test::kContextLen; ++i)
        slots.emplace_back(test::kPageSize + (row.value - 1) * test::kContextLen + i);
      rows_.write(row, 0, slots);
    }
  }

  // Tokens [num_computed, end) of a request, with logits of the last one.
  ExecutorBatch step_of(int request, int num_computed, int end) const {
    ExecutorBatch batch;
    const int num_new = end - num_computed;
    batch.mode = num_new == 1 ? ForwardMode::kDecode : ForwardMode::kExtend;
    batch.requests = {{.row = request_[request],
                       .num_computed = num_computed,
                       .num_new = num_new,
                       .prompt_len = end,
                       .num_logit_rows = 1}};
    for (int i = num_computed; i < end; ++i) batch.token_ids.push_back((17 * i + 5 * request + 3) % 500);
    batch.rules = {{.temperature = 0.0f}};
    return batch;
  }

  // `padded`: steps with drafts are padded.
  static ExecutorConfig verify_config(bool padded) {
    ExecutorConfig config = tiny_config();
    config.backend.limits.max_draft_tokens = 12;
    config.backend.limits.max_draft_reqs = 2;
    if (!padded) return config;
    config.decode_sizes = {1, 2};
    config.verify_sizes = verify_graph_sizes(config.decode_sizes, 2, 7, 32);
    return config;
  }

  static std::vector<float> floats(const TensorView& view) {
    const auto* const data = view.as<const float>();
    return {data, data + view.num_elements()};
  }

  ReqToTokenPool rows_;
  RequestRow request_[test::kMaxReqs];
};

TEST_F(ModelExecutorTest, ReturnsTheSameLogitsForAWholeAndAChunkedPrompt) {
  ModelExecutor executor(tiny_config(), {rows_});
  executor.load();
  const std::vector<float> at_once = floats(executor.launch(step_of(0, 0, 12)).logits);
  ASSERT_EQ(std::ssize(at_once), executor.spec().vocab_size);
  executor.launch(step_of(1, 0, 5));
  executor.launch(step_of(0, 0, 7));
  executor.launch(step_of(0, 7, 11));
  EXPECT_THAT(floats(executor.launch(step_of(0, 11, 12)).logits), Pointwise(FloatNear(1e-3f), at_once));
}

TEST_F(ModelExecutorTest, SharesRowsAndSlotsButNotTheCacheWithAnotherExecutor) {
  ModelExecutor target(tiny_config(), {rows_}), draft(tiny_config(), {rows_});
  target.load();
  draft.load();
  const std::vector<float> expected = floats(target.launch(step_of(0, 0, 9)).logits);
  target.launch(step_of(0, 0, 8));
  // Stores K/V of other tokens in the same slots.
  draft.launch(step_of(1, 0, 9));
  ExecutorBatch other = step_of(1, 0, 8);
  other.requests[0].row = request_[0];
  draft.launch(other);
  EXPECT_THAT(floats(target.launch(step_of(0, 8, 9)).logits), Pointwise(FloatNear(1e-3f), expected));
}

TEST_F(ModelExecutorTest, ReturnsHiddenStatesOfAllTokensOnRequest) {
  ExecutorConfig config = tiny_config();
  config.hidden_states = true;
  ModelExecutor executor(config, {rows_});
  executor.load();
  ExecutorBatch step = step_of(0, 0, 6);
  EXPECT_TRUE(executor.launch(step).hidden_states.empty());
  step.hidden_states = true;
  const ExecutorOutput output = executor.launch(step);
  ASSERT_EQ(output.hidden_states.shape[0], 6);
  ASSERT_EQ(output.hidden_states.shape[1], executor.spec().hidden_size);
  const std::vector<float> all = floats(output.hidden_states);
  // The hidden state of the last token does not depend on its batch.
  const std::vector<float> last(all.end() - executor.spec().hidden_size, all.end());
  executor.launch(step_of(0, 0, 5));
  ExecutorBatch decode = step_of(0, 5, 6);
  decode.hidden_states = true;
  EXPECT_THAT(floats(executor.launch(decode).hidden_states), Pointwise(FloatNear(1e-3f), last));
}

TEST_F(ModelExecutorTest, RejectsLogitRowsWithoutALogitsBuffer) {
  ExecutorConfig config = tiny_config();
  config.logits = false;
  config.hidden_states = true;
  ModelExecutor executor(config, {rows_});
  executor.load();
  ExecutorBatch step = step_of(0, 0, 6);
  test::expect_error(ErrorCode::kInternal, {"logits"}, [&] { executor.launch(step); });
  step.requests[0].num_logit_rows = 0;
  step.rules.clear();
  step.hidden_states = true;
  const ExecutorOutput output = executor.launch(step);
  EXPECT_TRUE(output.logits.empty());
  EXPECT_EQ(output.hidden_states.shape[0], 6);
}

TEST_F(ModelExecutorTest, ReadsLateTokenIds) {
  ModelExecutor executor(tiny_config(), {rows_});
  executor.load();
  executor.launch(step_of(0, 0, 8));
  ExecutorBatch step = step_of(0, 8, 9);
  const std::vector<float> expected = floats(executor.launch(step).logits);
  const Tensor ids = Tensor::from<int32_t>(step.token_ids, {1});
  step.token_ids[0] = 0;
  EXPECT_NE(floats(executor.launch(step).logits), expected);
  step.late_token_ids = {{0, ids}};
  EXPECT_EQ(floats(executor.launch(step).logits), expected);
}

// Padding changes neither the logits of the step's tokens nor the cache.
TEST_F(ModelExecutorTest, PadsAStepWithDrafts) {
  ModelExecutor plain(verify_config(false), {rows_}), padded(verify_config(true), {rows_});
  const auto verify = [&](int num_drafts) {
    ExecutorBatch batch = step_of(0, 9, 10 + num_drafts);
    batch.mode = ForwardMode::kTargetVerify;
    batch.requests[0].num_logit_rows = 1 + num_drafts;
    batch.requests[0].num_drafts = num_drafts;
    batch.rules.assign(static_cast<size_t>(1 + num_drafts), {.temperature = 0.0f});
    return batch;
  };
  std::vector<std::vector<float>> logits[2];
  for (ModelExecutor* executor : {&plain, &padded}) {
    executor->load();
    executor->launch(step_of(0, 0, 9));
    executor->launch(step_of(1, 0, 6));
    for (const int num_drafts : {1, 2, 3, 6}) {
      // One request, and two of which only one has drafts.
      ExecutorBatch batch = verify(num_drafts);
      for (int num_reqs = 1; num_reqs <= 2; ++num_reqs) {
        const ExecutorOutput output = executor->launch(batch);
        const auto num_rows = std::ssize(batch.rules);
        EXPECT_GE(output.logits.shape[0], num_rows);
        if (executor == &plain) {
          EXPECT_EQ(output.logits.shape[0], num_rows);
        }
        logits[executor == &padded].push_back(floats(output.logits.slice(0, 0, num_rows)));
        const ExecutorBatch other = step_of(1, 6, 7);
        batch.requests.push_back(other.requests[0]);
        batch.token_ids.push_back(other.token_ids[0]);
        batch.rules.push_back(other.rules[0]);
      }
    }
    logits[executor == &padded].push_back(floats(executor->launch(step_of(0, 9, 10)).logits));
  }
  ASSERT_EQ(logits[1].size(), logits[0].size());
  for (size_t i = 0; i < logits[0].size(); ++i)
    EXPECT_THAT(logits[1][i], Pointwise(FloatNear(1e-3f), logits[0][i])) << i;
}

// A draft model computes accepted tokens and requires the logits of the last one only. So does a target with
// the tokens before a tree of drafts.
TEST_F(ModelExecutorTest, PadsAStepInWhichSomeTokensHaveNoLogits) {
  std::vector<std::vector<float>> logits[2];
  for (const bool padded : {false, true}) {
    ModelExecutor executor(verify_config(padded), {rows_});
    executor.load();
    executor.launch(step_of(0, 0, 9));
    executor.launch(step_of(1, 0, 6));
    for (const auto& [num_new, num_rows] : {std::pair{2, 1}, {5, 1}, {7, 4}}) {
      ExecutorBatch batch = step_of(0, 9, 9 + num_new);
      const ExecutorBatch other = step_of(1, 6, 8);
      batch.mode = ForwardMode::kTargetVerify;
      batch.requests[0].num_logit_rows = num_rows;
      batch.requests.push_back(other.requests[0]);
      batch.token_ids.insert(batch.token_ids.end(), other.token_ids.begin(), other.token_ids.end());
      batch.rules.assign(static_cast<size_t>(num_rows + 1), {.temperature = 0.0f});
      const TensorView all = executor.launch(batch).logits;
      if (padded) {
        EXPECT_GE(all.shape[0], num_new + 2) << "not padded";
      }
      logits[padded].push_back(floats(all.slice(0, 0, num_rows + 1)));
    }
  }
  for (size_t i = 0; i < logits[0].size(); ++i)
    EXPECT_THAT(logits[1][i], Pointwise(FloatNear(1e-3f), logits[0][i])) << i;
}

TEST_F(ModelExecutorTest, RejectsABatchWithAWrongNumberOfTokens) {
  ModelExecutor executor(tiny_config(), {rows_});
  executor.load();
  ExecutorBatch step = step_of(0, 0, 6);
  step.token_ids.pop_back();
  test::expect_error(ErrorCode::kInternal, {"a step of 5 tokens", "requests have 6"},
                     [&] { executor.launch(step); });
}

}  // namespace
}  // namespace attend
