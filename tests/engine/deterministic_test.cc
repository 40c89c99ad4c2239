// --enable-deterministic-inference on the bundled model: the output of a request depends only on that
// request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/error_message.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::kGpu;
using Tokens = std::vector<int32_t>;

// Prompts of a few to a few hundred tokens.
std::vector<Tokens> prompts() {
  std::ifstream file(ATTEND_SOURCE_DIR "/tests/data/attend-tiny-prompts.jsonl");
  std::vector<Tokens> prompts;
  for (std::string line; std::getline(file, line) && prompts.size() < 12;) {
    Tokens ids = nlohmann::json::parse(line).at("input_ids");
    if (ids.size() <= 600) prompts.push_back(std::move(ids));
  }
  return prompts;
}

struct Place {
  Device device = {};
  DType dtype = DType::kF32;
};

EngineConfig deterministic_config(const Place& place) {
  EngineConfig config;
  config.device = place.device;
  config.dtype = place.dtype;
  config.model_path = ATTEND_SOURCE_DIR "/models/attend-tiny";
  config.deterministic_inference = true;
  config.max_running_requests = 12;
  config.context_length = 1024;
  return config;
}

struct Outcome {
  std::vector<Tokens> outputs;  // in the order of the prompts
  int num_preemptions = 0;
};

// A temperature so high that a change of one bit in a logit soon changes a token.
SamplingParams sampling(size_t prompt_idx) {
  return {.max_new_tokens = 100, .temperature = 1.5f, .seed = 100 + prompt_idx, .ignore_eos = true};
}

void collect(Engine& engine, Outcome& outcome, RequestId first_id, size_t first_prompt) {
  while (engine.step([&](const RequestOutput& output) {
    if (output.finish_reason == FinishReason::kNone) return;
    const Request& request = output.request;
    outcome.outputs[first_prompt + static_cast<size_t>(output.id - first_id)].assign(
        request.tokens.begin() + request.num_prompt, request.tokens.end());
    outcome.num_preemptions += request.num_preemptions;
  })) {
  }
}

Outcome run_together(const EngineConfig& config, const std::vector<Tokens>& prompts) {
  Engine engine(config);
  Outcome outcome{.outputs = std::vector<Tokens>(prompts.size())};
  std::vector<RequestId> ids;
  for (size_t i = 0; i < prompts.size(); ++i) ids.push_back(engine.submit(prompts[i], sampling(i)));
  collect(engine, outcome, ids[0], 0);
  return outcome;
}

Outcome run_one_by_one(const EngineConfig& config, const std::vector<Tokens>& prompts) {
  Engine engine(config);
  Outcome outcome{.outputs = std::vector<Tokens>(prompts.size())};
  for (size_t i = 0; i < prompts.size(); ++i)
    collect(engine, outcome, engine.submit(prompts[i], sampling(i)), i);
  return outcome;
}

// Parameterized by device and dtype.
class DeterministicInference : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam().device == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }

  static EngineConfig config() { return deterministic_config(GetParam()); }
};

TEST_P(DeterministicInference, ProducesTheSameTokensSinglyAndInABatch) {
  EXPECT_EQ(run_together(config(), prompts()).outputs, run_one_by_one(config(), prompts()).outputs);
}

TEST_P(DeterministicInference, ProducesTheSameTokensForEverySizeOfChunks) {
  EngineConfig chunked = config();
  const std::vector<Tokens> whole = run_together(chunked, prompts()).outputs;
  for (const int size : {12, 31, 100}) {
    chunked.chunked_prefill_size = size;
    EXPECT_EQ(run_together(chunked, prompts()).outputs, whole) << "chunks of " << size;
  }
}

TEST_P(DeterministicInference, ProducesTheSameTokensAfterPreemption) {
  for (const int page_size : {1, 16, 64}) {
    EngineConfig small = config();
    small.backend_options.page_size = page_size;
    const std::vector<Tokens> expected = run_one_by_one(small, prompts()).outputs;
    size_t longest = 0;
    for (const Tokens& prompt : prompts()) longest = std::max(longest, prompt.size());
    // The pool has room for the longest request and little more.
    small.schedule.conservativeness = 0.0;
    small.max_total_tokens = static_cast<int64_t>(longest) + 110;
    const Outcome outcome = run_together(small, prompts());
    EXPECT_GT(outcome.num_preemptions, 0) << "page size " << page_size;
    EXPECT_EQ(outcome.outputs, expected) << "page size " << page_size;
  }
}

TEST_P(DeterministicInference, ProducesTheSameTokensFromAColdAWarmAndAHalfWarmPrefixCache) {
  for (const int page_size : {1, 16, 64}) {
    EngineConfig paged = config();
    paged.backend_options.page_size = page_size;
    paged.disable_radix_cache = true;
    const std::vector<Tokens> expected = run_together(paged, prompts()).outputs;
    paged.disable_radix_cache = false;
    EXPECT_EQ(run_together(paged, prompts()).outputs, expected) << "cold, page size " << page_size;
    Engine engine(paged);
    for (const bool whole : {false, true}) {
      for (const Tokens& prompt : prompts()) {
        const auto length = static_cast<std::ptrdiff_t>(whole ? prompt.size() : (prompt.size() + 1) / 2);
        engine.submit(Tokens(prompt.begin(), prompt.begin() + length), sampling(0));
      }
      while (engine.step([](const RequestOutput&) {})) {
      }
      const int64_t num_cached = engine.stats().num_cached_tokens;
      Outcome outcome{.outputs = std::vector<Tokens>(prompts().size())};
      RequestId first = 0;
      for (size_t i = 0; i < prompts().size(); ++i) {
        const RequestId id = engine.submit(prompts()[i], sampling(i));
        if (i == 0) first = id;
      }
      collect(engine, outcome, first, 0);
      EXPECT_EQ(outcome.outputs, expected) << (whole ? "warm" : "half-warm") << ", page size " << page_size;
      EXPECT_GT(engine.stats().num_cached_tokens, num_cached);
    }
  }
}

TEST_P(DeterministicInference, ProducesTheSameTokensForEveryPageSize) {
  const std::vector<Tokens> expected = run_together(config(), prompts()).outputs;
  for (const int page_size : {1, 16, 128}) {
    EngineConfig paged = config();
    paged.backend_options.page_size = page_size;
    EXPECT_EQ(run_together(paged, prompts()).outputs, expected) << "page size " << page_size;
  }
}

std::string name_of(const testing::TestParamInfo<Place>& test) {
  return (test.param.device == kGpu ? "gpu_" : "cpu_") + std::string(to_string(test.param.dtype));
}

constexpr Place kOnGpu[] = {{kGpu, DType::kF32}, {kGpu, DType::kF16}, {kGpu, DType::kBF16}};
INSTANTIATE_TEST_SUITE_P(OnCpu, DeterministicInference, testing::Values(Place{}), name_of);
INSTANTIATE_TEST_SUITE_P(OnGpu, DeterministicInference, testing::ValuesIn(kOnGpu), name_of);

class DeterministicGraphs : public DeterministicInference {};

TEST_P(DeterministicGraphs, MatchEagerStepsForAnyGraphSizes) {
  EngineConfig launched = config();
  launched.disable_cuda_graph = true;
  const std::vector<Tokens> expected = run_together(launched, prompts()).outputs;
  for (const std::vector<int>& sizes : {std::vector<int>{12}, {1, 3, 5}, {}}) {
    EngineConfig replayed = config();
    replayed.cuda_graph_bs = sizes;
    EXPECT_EQ(run_together(replayed, prompts()).outputs, expected) << sizes.size() << " sizes";
  }
}

INSTANTIATE_TEST_SUITE_P(OnGpu, DeterministicGraphs, testing::ValuesIn(kOnGpu), name_of);

TEST(DeterministicInferenceOnCpu, ProducesTheSameTokensOnEveryNumberOfThreads) {
  const int all_threads = num_threads();
  std::vector<std::vector<Tokens>> outputs;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    outputs.push_back(run_together(deterministic_config({}), prompts()).outputs);
  }
  set_num_threads(all_threads);
  EXPECT_EQ(outputs[1], outputs[0]);
  EXPECT_EQ(outputs[2], outputs[0]);
}

TEST(DeterministicInferenceOnCpu, ProducesTheSameBitsFromAColdAWarmAndAHalfWarmPrefixCache) {
  const auto logprobs_of = [](Engine& engine, const Tokens& prompt) {
    std::vector<float> logprobs;
    SamplingParams params = sampling(0);
    params.max_new_tokens = 12;
    params.logprobs = 0;
    engine.submit(prompt, params);
    while (engine.step([&](const RequestOutput& output) {
      logprobs.insert(logprobs.end(), output.logprobs.logprobs.begin(), output.logprobs.logprobs.end());
    })) {
    }
    return logprobs;
  };
  EngineConfig config = deterministic_config({});
  config.backend_options.page_size = 16;
  Engine caching(config), half_warm(config);
  config.disable_radix_cache = true;
  Engine plain(config);
  for (const Tokens& prompt : prompts()) {
    const std::vector<float> expected = logprobs_of(plain, prompt);
    ASSERT_EQ(expected.size(), 12u);
    EXPECT_EQ(logprobs_of(caching, prompt), expected) << "cold";
    EXPECT_EQ(logprobs_of(caching, prompt), expected) << "warm";
    logprobs_of(half_warm,
                Tokens(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(prompt.size() + 1) / 2));
    EXPECT_EQ(logprobs_of(half_warm, prompt), expected) << "half-warm";
  }
  EXPECT_GT(half_warm.stats().num_cached_tokens, 0);
}

TEST(DeterministicInferenceOnCpu, RejectsABackendWithoutDeterministicSupport) {
  EngineConfig config = deterministic_config({});
  config.backend_options.attention_backend = "trtllm_mha";
  EXPECT_THAT(testing_support::error_message(ErrorCode::kUnsupported, [&] { Engine engine(config); }),
              testing::HasSubstr("deterministic inference"));
}

}  // namespace
}  // namespace attend
