// Requests for which the model computes NaN or infinite logits.
#include <gtest/gtest.h>

#include <map>

#include "attend/engine/engine.h"
#include "tests/support/overflowing_model.h"

namespace attend {
namespace {

constexpr int32_t kBadToken = 77;

class FailingRequest : public testing::Test {
 protected:
  FailingRequest() {
    // Tests run concurrently, each in its own process.
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    config_.model_path = std::filesystem::path(testing::TempDir()) / ("attend_failing_" + test);
    testing_support::make_overflowing_model(ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32",
                                            config_.model_path, kBadToken);
    config_.max_total_tokens = 256;
  }
  ~FailingRequest() override { std::filesystem::remove_all(config_.model_path); }

  struct Result {
    std::vector<int32_t> tokens;  // as passed to the sink
    FinishReason reason = FinishReason::kNone;
    int num_output = -1;  // number of output tokens that the request holds at its end
    std::string message;
    bool operator==(const Result&) const = default;
  };

  static std::map<RequestId, Result> finish_all(Engine& engine) {
    std::map<RequestId, Result> results;
    while (engine.step([&](const RequestOutput& output) {
      Result& result = results[output.id];
      result.tokens.insert(result.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      result.message = output.message;
      result.reason = output.finish_reason;
      result.num_output = output.request.num_output();
    })) {
    }
    EXPECT_EQ(engine.num_used_slots(), 0);
    return results;
  }

  std::vector<Result> complete(const std::vector<std::vector<int32_t>>& prompts) const {
    Engine engine(config_);
    std::vector<RequestId> ids;
    for (const auto& prompt : prompts) ids.push_back(engine.submit(prompt, params_));
    auto results = finish_all(engine);
    std::vector<Result> ordered;
    for (const RequestId id : ids) ordered.push_back(results.at(id));
    return ordered;
  }

  EngineConfig config_;
  SamplingParams params_{.max_new_tokens = 8, .stop_token_ids = {kBadToken}, .ignore_eos = true};
};

TEST_F(FailingRequest, EndsWithAnErrorAndChangesNoOther) {
  const std::vector<int32_t> first = {5, 6, 7, 8}, last = {30, 31, 32}, bad = {9, kBadToken, 10};
  const std::vector<Result> good = complete({first, last});
  const std::vector<Result> with_bad = complete({first, bad, last});
  EXPECT_EQ(with_bad[1],
            (Result{.tokens = {},
                    .reason = FinishReason::kError,
                    .num_output = 0,
                    .message = "the model's logits are NaN: expected weights and a --kv-cache-dtype whose "
                               "range covers the activations"}));
  EXPECT_EQ(good[0].reason, FinishReason::kLength);
  EXPECT_EQ(with_bad[0], good[0]);
  EXPECT_EQ(with_bad[2], good[1]);
}

TEST_F(FailingRequest, EndsOnNonFiniteLogits) {
  const std::vector<int32_t> first = {5, 6, 7, 8}, last = {30, 31, 32}, bad = {9, 10, 11};
  params_.stop_token_ids.clear();
  const std::vector<Result> good = complete({first, last});
  Engine engine(config_);
  const RequestId before = engine.submit(first, params_);
  SamplingParams forced = params_;
  forced.logit_bias = {{kBadToken, 100.0f}};  // this first token makes the second one's logits non-finite
  const RequestId failing = engine.submit(bad, forced);
  const RequestId after = engine.submit(last, params_);
  auto results = finish_all(engine);
  EXPECT_EQ(results.at(failing).tokens, std::vector<int32_t>{kBadToken});
  EXPECT_EQ(results.at(failing).reason, FinishReason::kError);
  EXPECT_EQ(results.at(before), good[0]);
  EXPECT_EQ(results.at(after), good[1]);
}

TEST_F(FailingRequest, DoesNotCorruptReusedPages) {
  Engine used(config_);
  const std::vector<int32_t> good = {5, 6, 7, 8};
  // Fills the whole pool with non-finite K/V.
  std::vector<int32_t> bad(250, kBadToken);
  used.submit(bad, params_);
  EXPECT_EQ(finish_all(used).begin()->second.reason, FinishReason::kError);
  const RequestId id = used.submit(good, params_);
  EXPECT_EQ(finish_all(used).at(id), complete({good})[0]);
}

TEST_F(FailingRequest, SamplesNoTokenAtAnyTemperature) {
  params_.temperature = 0.7f;
  EXPECT_EQ(complete({{9, kBadToken}})[0].reason, FinishReason::kError);
}

}  // namespace
}  // namespace attend
