// StepRunner with an executor that returns known logits, without a model or a cache.
#include "attend/engine/step/step_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attend/engine/step/logits_processor.h"
#include "tests/support/error_message.h"

namespace attend {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kVocab = 40;
constexpr int32_t kNanToken = 39;  // token with NaN logits

// The logits of a token depend only on its id: 3 for the next id, 2 for the one after it, 0 for others.
class CountingExecutor : public Executor {
 public:
  CountingExecutor() { spec_.vocab_size = kVocab; }

  ExecutorOutput launch(const ExecutorBatch& batch) override {
    batches.push_back(batch);
    ids_ = batch.token_ids;
    for (const LateTokenIds& late : batch.late_token_ids)
      std::copy_n(late.ids.as<const int32_t>(), late.ids.shape[0], ids_.begin() + late.first_token);
    std::vector<int32_t> sampled;
    int end = 0;
    for (const ExecutorRequest& request : batch.requests) {
      end += request.num_new;
      sampled.insert(sampled.end(), ids_.begin() + end - request.num_logit_rows, ids_.begin() + end);
    }
    rules_ = batch.rules;
    ExecutorOutput output{.launched = std::chrono::steady_clock::now(),
                          .logits = fill_logits(sampled),
                          .rules = rules_,
                          .hidden_states = {}};
    if (batch.hidden_states) output.hidden_states = hidden_states;
    return output;
  }
  TensorView compute_logits(int first_token, int num_tokens) override {
    num_rows_scored.push_back(num_tokens);
    return fill_logits(
        std::span(ids_).subspan(static_cast<size_t>(first_token), static_cast<size_t>(num_tokens)));
  }
  Stream& stream() override { return stream_; }
  const BatchLimits& limits() const override { return limits_; }
  const ModelSpec& spec() const override { return spec_; }

  std::vector<ExecutorBatch> batches;
  std::vector<int> num_rows_scored;  // per call of compute_logits()
  Tensor hidden_states;

 private:
  TensorView fill_logits(std::span<const int32_t> ids) {
    logits_ = Tensor::zeros({std::ssize(ids), kVocab}, DType::kF32);
    for (int64_t row = 0; row < std::ssize(ids); ++row) {
      const View<float> logits = logits_.view()[row].span<float>();
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(row)]);
      logits[(id + 1) % kVocab] = 3.0f;
      logits[(id + 2) % kVocab] = 2.0f;
      if (id == kNanToken) std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
    }
    return logits_;
  }

  BatchLimits limits_{.max_reqs = 3, .max_tokens = 16, .max_kv_tokens = 64};
  ModelSpec spec_;
  Stream stream_;
  std::vector<int32_t> ids_;
  std::vector<kernels::SamplingRule> rules_;
  Tensor logits_;
};

float logprob(float logit) {
  return logit - std::log(std::exp(3.0f) + std::exp(2.0f) + static_cast<float>(kVocab - 2));
}

// Allows the given tokens.
class FixedMask : public TokenMask {
 public:
  explicit FixedMask(std::vector<int32_t> allowed) : allowed_(std::move(allowed)) {}
  bool fill(std::span<uint32_t> words) override {
    std::ranges::fill(words, 0u);
    for (const int32_t id : allowed_) words[static_cast<size_t>(id) / 32] |= 1u << id % 32;
    return true;
  }
  void accept(int32_t) override {}
  std::shared_ptr<TokenMask> fork() const override { return std::make_shared<FixedMask>(allowed_); }

 private:
  std::vector<int32_t> allowed_;
};

class StepRunnerTest : public testing::Test {
 protected:
  StepRunnerTest() : rows_(3, 16), runner_(executor_, CommonPrefix(rows_, 4, 0)) {}

  Request prompt(std::vector<int32_t> tokens) {
    Request request;
    request.num_prompt = static_cast<int>(tokens.size());
    request.tokens = std::move(tokens);
    request.row = *rows_.allocate();
    return request;
  }
  // A step with all tokens of the requests that are not computed yet.
  static ScheduledStep step_of(std::initializer_list<Request*> requests) {
    ScheduledStep step;
    step.mode = ForwardMode::kDecode;
    for (Request* const request : requests) {
      step.requests.push_back({request, request->num_to_compute()});
      step.num_tokens += request->num_to_compute();
      if (!request->decoding()) step.mode = ForwardMode::kExtend;
    }
    return step;
  }
  std::vector<int32_t> run(ScheduledStep step) {
    const View<const int32_t> tokens = runner_.run(step);
    return {tokens.begin(), tokens.end()};
  }

  ReqToTokenPool rows_;
  CountingExecutor executor_;
  StepRunner runner_;
};

TEST_F(StepRunnerTest, SamplesFromTheLogitsOfItsExecutor) {
  Request one = prompt({5, 6, 7}), two = prompt({20});
  EXPECT_THAT(run(step_of({&one, &two})), ElementsAre(8, 21));
  EXPECT_THAT(runner_.sampling_requests(), ElementsAre(0, 1));
  EXPECT_EQ(runner_.logits().shape[0], 2);
  ASSERT_THAT(executor_.batches, SizeIs(1));
  EXPECT_THAT(executor_.batches[0].token_ids, ElementsAre(5, 6, 7, 20));
}

TEST_F(StepRunnerTest, SamplesNothingBeforeTheEndOfAPrompt) {
  Request one = prompt({5, 6, 7}), two = prompt({20});
  ScheduledStep step = step_of({&one, &two});
  step.requests[0].num_new = 2;
  step.num_tokens = 3;
  EXPECT_THAT(run(step), ElementsAre(21));
  EXPECT_THAT(runner_.sampling_requests(), ElementsAre(1));
}

TEST_F(StepRunnerTest, AppliesMasksAndBiasesOfSingleRequests) {
  Request plain = prompt({5}), masked = prompt({5}), biased = prompt({5});
  masked.mask = std::make_shared<FixedMask>(std::vector<int32_t>{1, 7});
  biased.params.logit_bias = {{30, 9.0f}};
  biased.logits_processor =
      std::make_shared<LogitsProcessor>(biased.params, std::span(biased.tokens), std::span<const int32_t>());
  EXPECT_THAT(run(step_of({&plain, &masked, &biased})), ElementsAre(6, 7, 30));
  EXPECT_THAT(masked.failure, IsEmpty());
}

TEST_F(StepRunnerTest, FailsARequestWhoseMaskAllowsNoToken) {
  Request plain = prompt({5}), masked = prompt({5});
  masked.mask = std::make_shared<FixedMask>(std::vector<int32_t>{});
  run(step_of({&plain, &masked}));
  EXPECT_THAT(masked.failure, HasSubstr("leave no token to choose"));
  EXPECT_THAT(plain.failure, IsEmpty());
}

TEST_F(StepRunnerTest, ReturnsNoTokenForLogitsThatAreNaN) {
  Request broken = prompt({kNanToken}), plain = prompt({5});
  EXPECT_THAT(run(step_of({&broken, &plain})), ElementsAre(kernels::kNoToken, 6));
}

TEST_F(StepRunnerTest, ReturnsLogprobsOfRequestsWithLogprobs) {
  Request plain = prompt({5}), scored = prompt({9});
  scored.params.logprobs = 2;
  EXPECT_THAT(run(step_of({&plain, &scored})), ElementsAre(6, 10));
  EXPECT_TRUE(runner_.logprobs(0).empty());
  const LogprobsView logprobs = runner_.logprobs(1);
  EXPECT_THAT(logprobs.logprobs, ElementsAre(FloatNear(logprob(3.0f), 1e-5f)));
  ASSERT_THAT(logprobs.top(0), SizeIs(2));
  EXPECT_EQ(logprobs.top(0)[1].token_id, 11);
  EXPECT_NEAR(logprobs.top(0)[1].logprob, logprob(2.0f), 1e-5f);
}

// The prompt has more tokens than the executor has rows of logits.
TEST_F(StepRunnerTest, ScoresPromptsByTheLogitsOfTheirTokens) {
  Request request = prompt({5, 6, 8, 20, 21, 22});
  request.params.prompt_logprobs = 0;
  EXPECT_THAT(run(step_of({&request})), ElementsAre(23));
  EXPECT_THAT(executor_.num_rows_scored, ElementsAre(3, 2));
  EXPECT_THAT(request.prompt_logprobs.logprobs,
              ElementsAre(FloatNear(logprob(3.0f), 1e-5f), FloatNear(logprob(2.0f), 1e-5f),
                          FloatNear(logprob(0.0f), 1e-5f), FloatNear(logprob(3.0f), 1e-5f),
                          FloatNear(logprob(3.0f), 1e-5f)));
}

TEST_F(StepRunnerTest, PassesTheTokensOfTheStepInFlightToTheNextOne) {
  Request one = prompt({5}), two = prompt({20});
  ScheduledStep first = step_of({&one, &two});
  runner_.launch(first);
  for (Request* const request : {&one, &two}) request->num_computed = 1;
  ScheduledStep second{
      .requests = {{&two, 1, 1}}, .num_tokens = 1, .mode = ForwardMode::kDecode, .ahead = true};
  runner_.launch(second);
  EXPECT_THAT(runner_.wait(first), ElementsAre(6, 21));
  EXPECT_THAT(runner_.wait(second), ElementsAre(22));
  ASSERT_THAT(executor_.batches, SizeIs(2));
  EXPECT_THAT(executor_.batches[1].late_token_ids, SizeIs(1));
}

TEST_F(StepRunnerTest, ReturnsHiddenStatesOfPoolingSteps) {
  executor_.hidden_states = Tensor::zeros({2, 4}, DType::kF32);
  Request request = prompt({5, 6});
  request.pools = true;
  EXPECT_THAT(run(step_of({&request})), IsEmpty());
  EXPECT_TRUE(executor_.batches[0].hidden_states);
  EXPECT_EQ(runner_.hidden_states().data, executor_.hidden_states.view().data);
}

}  // namespace
}  // namespace attend
