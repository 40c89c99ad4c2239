// The KV pool runs full in the middle of a batch: who can not grow is preempted, starts over later and gives
// the same tokens; nobody else notices. With the bundled model, whose answers depend on the whole prompt.
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

// Prompts of 20 to 120 tokens, of several tasks.
std::vector<std::vector<int32_t>> read_prompts() {
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/attend-tiny-prompts.jsonl");
  std::vector<std::vector<int32_t>> prompts;
  for (std::string line; prompts.size() < kNumPrompts && std::getline(file, line);) {
    const std::vector<int32_t> ids = nlohmann::json::parse(line).at("input_ids");
    if (ids.size() >= 20 && ids.size() <= 120) prompts.push_back(ids);
  }
  return prompts;
}

struct WatchedResult {
  std::vector<int32_t> streamed, tokens;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  int num_preemptions = 0;
};

// An engine whose every output is kept and checked.
class Watched {
 public:
  explicit Watched(const EngineConfig& config) : engine_(config) {}

  void submit(const std::vector<int32_t>& prompt, const SamplingParams& params) {
    ids_.push_back(engine_.submit(prompt, params));
  }
  bool step() {
    const bool done_something = engine_.step([&](const RequestOutput& output) {
      WatchedResult& result = results_[output.id];
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
  // In the order of the prompts.
  std::vector<WatchedResult> finish() {
    while (step()) {
    }
    EXPECT_EQ(engine_.num_used_slots(), 0);
    std::vector<WatchedResult> ordered;
    for (const RequestId id : ids_) ordered.push_back(results_.at(id));
    return ordered;
  }

 private:
  Engine engine_;
  std::vector<RequestId> ids_;
  std::map<RequestId, WatchedResult> results_;
};

void expect_same(const WatchedResult& result, const WatchedResult& alone) {
  EXPECT_EQ(result.tokens, alone.tokens);
  EXPECT_EQ(result.streamed, alone.tokens) << "each token is handed out once";
  EXPECT_EQ(result.text, alone.text);
  EXPECT_EQ(result.reason, alone.reason);
}

struct Way {
  std::string name;
  int page_size;
  SamplingParams params;

  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

class FullPool : public testing::TestWithParam<Way> {
 protected:
  EngineConfig config() const {
    EngineConfig config;
    config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
    config.backend_options.page_size = GetParam().page_size;
    return config;
  }
  // Room for the largest request alone and a little more; all together would need several times as much. A
  // request is admitted when a page is left for each that runs, so only growing by more pages fills the pool.
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
  WatchedResult alone(size_t i) const {
    Watched watched(config());
    watched.submit(prompts_[i], params(i));
    return watched.finish().front();
  }

  const std::vector<std::vector<int32_t>> prompts_ = read_prompts();
};

TEST_P(FullPool, ChangesNoTokenOfAnyRequest) {
  ASSERT_EQ(prompts_.size(), kNumPrompts);
  Watched watched(narrow_config());
  for (size_t i = 0; i < prompts_.size(); ++i) watched.submit(prompts_[i], params(i));
  const std::vector<WatchedResult> results = watched.finish();
  int num_preempted = 0, num_undisturbed = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    expect_same(results[i], alone(i));
    ++(results[i].num_preemptions > 0 ? num_preempted : num_undisturbed);
  }
  EXPECT_GT(num_preempted, 0) << "the pool was not full: the test tests nothing";
  EXPECT_GT(num_undisturbed, 0) << "nobody was there to notice";
}

TEST_P(FullPool, ChangesNoTokenOfRequestsThatComeWhileItIsFull) {
  Watched watched(narrow_config());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    watched.submit(prompts_[i], params(i));
    for (int k = 0; k < 7; ++k) watched.step();
  }
  const std::vector<WatchedResult> results = watched.finish();
  int num_preempted = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    expect_same(results[i], alone(i));
    num_preempted += results[i].num_preemptions > 0 ? 1 : 0;
  }
  EXPECT_GT(num_preempted, 0) << "the pool was not full: the test tests nothing";
}

std::vector<Way> ways() {
  const SamplingParams greedy{.ignore_eos = true};
  const SamplingParams sampled{.temperature = 0.9f, .top_k = 50, .top_p = 0.95f, .ignore_eos = true};
  std::vector<Way> all;
  for (const int page_size : {1, 16, 64}) {
    all.push_back({"GreedyOnPagesOf" + std::to_string(page_size), page_size, greedy});
    all.push_back({"SampledOnPagesOf" + std::to_string(page_size), page_size, sampled});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, FullPool, testing::ValuesIn(ways()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace attend
