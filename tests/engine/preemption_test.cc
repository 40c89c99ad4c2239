// When the KV pool runs full, a request that cannot grow is preempted, starts over later and produces the
// same tokens; other requests do not change. Uses the bundled model: its answers depend on the whole
// prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "attend/engine/engine.h"

namespace attend {
namespace {

constexpr size_t kNumPrompts = 8;

// Prompts of 20 to 120 tokens from several tasks.
std::vector<std::vector<int32_t>> read_prompts() {
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/attend-tiny-prompts.jsonl");
  std::vector<std::vector<int32_t>> prompts;
  for (std::string line; prompts.size() < kNumPrompts && std::getline(file, line);) {
    const std::vector<int32_t> ids = nlohmann::json::parse(line).at("input_ids");
    if (ids.size() >= 20 && ids.size() <= 120) prompts.push_back(ids);
  }
  return prompts;
}

struct RecordedResult {
  std::vector<int32_t> streamed, tokens;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  int num_preemptions = 0;
};

// Engine that records and checks every output.
class RecordingEngine {
 public:
  explicit RecordingEngine(const EngineConfig& config) : engine_(config) {}

  void submit(const std::vector<int32_t>& prompt, const SamplingParams& params) {
    ids_.push_back(engine_.submit(prompt, params));
  }
  bool step() {
    const bool done_something = engine_.step([&](const RequestOutput& output) {
      RecordedResult& result = results_[output.id];
      EXPECT_EQ(result.reason, FinishReason::kNone) << "a token after the end";
      result.streamed.insert(result.streamed.end(), output.token_ids.begin(), output.token_ids.end());
      result.text += output.text;
      result.reason = output.finish_reason;
      result.num_preemptions = output.request.num_preemptions;
      const auto& tokens = output.request.tokens;
      result.tokens.assign(tokens.begin() + output.request.num_prompt, tokens.end());
    });
    EXPECT_LE(engine_.num_used_slots(), engine_.info().pool_slots);
    return done_something;
  }
  // Results in the order of the prompts.
  std::vector<RecordedResult> finish() {
    while (step()) {
    }
    EXPECT_EQ(engine_.num_used_slots(), 0);
    std::vector<RecordedResult> ordered;
    for (const RequestId id : ids_) ordered.push_back(results_.at(id));
    return ordered;
  }

 private:
  Engine engine_;
  std::vector<RequestId> ids_;
  std::map<RequestId, RecordedResult> results_;
};

void expect_same(const RecordedResult& result, const RecordedResult& single) {
  EXPECT_EQ(result.tokens, single.tokens);
  EXPECT_EQ(result.streamed, single.tokens) << "each token is streamed once";
  EXPECT_EQ(result.text, single.text);
  EXPECT_EQ(result.reason, single.reason);
}

struct FullPoolCase {
  std::string name;
  int page_size;
  SamplingParams params;

  friend void PrintTo(const FullPoolCase& c, std::ostream* out) { *out << c.name; }
};

class FullPool : public testing::TestWithParam<FullPoolCase> {
 protected:
  EngineConfig config() const {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.backend_options.page_size = GetParam().page_size;
    return config;
  }
  // The pool has room for the largest request and little more; all requests together need several times as
  // much. A request is admitted when one page is left per running request, so the pool fills only as requests
  // grow.
  EngineConfig narrow_config() const {
    EngineConfig narrow = config();
    narrow.schedule.conservativeness = 0.0;
    narrow.max_total_tokens = GetParam().page_size == 64 ? 640 : 384;
    return narrow;
  }
  SamplingParams params(size_t i) const {
    SamplingParams params = GetParam().params;
    params.max_new_tokens = std::max(48, 5 * GetParam().page_size / 2);
    params.seed = 100 + i;
    return params;
  }
  RecordedResult run_single(size_t i) const {
    RecordingEngine engine(config());
    engine.submit(prompts_[i], params(i));
    return engine.finish().front();
  }

  const std::vector<std::vector<int32_t>> prompts_ = read_prompts();
};

TEST_P(FullPool, ChangesNoTokenOfAnyRequest) {
  ASSERT_EQ(prompts_.size(), kNumPrompts);
  RecordingEngine engine(narrow_config());
  for (size_t i = 0; i < prompts_.size(); ++i) engine.submit(prompts_[i], params(i));
  const std::vector<RecordedResult> results = engine.finish();
  int num_preempted = 0, num_undisturbed = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    expect_same(results[i], run_single(i));
    ++(results[i].num_preemptions > 0 ? num_preempted : num_undisturbed);
  }
  EXPECT_GT(num_preempted, 0) << "the pool was not full: the test checks nothing";
  EXPECT_GT(num_undisturbed, 0) << "every request was preempted: the test checks too little";
}

TEST_P(FullPool, ChangesNoTokenOfRequestsSubmittedWhileItIsFull) {
  RecordingEngine engine(narrow_config());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    engine.submit(prompts_[i], params(i));
    for (int k = 0; k < 7; ++k) engine.step();
  }
  const std::vector<RecordedResult> results = engine.finish();
  int num_preempted = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    expect_same(results[i], run_single(i));
    num_preempted += results[i].num_preemptions > 0 ? 1 : 0;
  }
  EXPECT_GT(num_preempted, 0) << "the pool was not full: the test checks nothing";
}

std::vector<FullPoolCase> full_pool_cases() {
  const SamplingParams greedy{.ignore_eos = true};
  const SamplingParams sampled{.temperature = 0.9f, .top_k = 50, .top_p = 0.95f, .ignore_eos = true};
  std::vector<FullPoolCase> all;
  for (const int page_size : {1, 16, 64}) {
    all.push_back({"GreedyOnPagesOf" + std::to_string(page_size), page_size, greedy});
    all.push_back({"SampledOnPagesOf" + std::to_string(page_size), page_size, sampled});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, FullPool, testing::ValuesIn(full_pool_cases()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace attend
