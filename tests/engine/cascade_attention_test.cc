// Cascade attention in the engine: decode steps of requests with a shared prefix return the same results as
// without it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"

namespace attend {
namespace {

constexpr int kRequests = 12, kShared = 160, kNewTokens = 9;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

struct Answers {
  std::map<RequestId, Answer> by_request;
  EngineStats stats;
};

EngineConfig make_config(std::string_view model, std::string_view backend, int page_size) {
  EngineConfig config;
  config.model_path = std::string(ATTEND_SOURCE_DIR) + "/" + std::string(model);
  config.backend_options.attention_backend = backend;
  config.backend_options.page_size = page_size;
  config.max_running_requests = kRequests;
  // In bfloat16, a sum in another order may round to another value, so these models run in float32.
  config.dtype = DType::kF32;
  return config;
}

// Submits prompts that share their first `num_shared` tokens and continue with one to three more. With
// `mixed`, every fourth prompt differs in its first token and shares nothing.
Answers complete(const EngineConfig& config, int num_shared = kShared, bool mixed = false) {
  Engine engine(config);
  for (int r = 0; r < kRequests; ++r) {
    std::vector<int32_t> prompt(static_cast<size_t>(num_shared));
    const bool shares_nothing = mixed && r % 4 == 1;
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(3 + i * i % 89);
    if (shares_nothing) prompt.front() = 4 + r;
    for (int i = 0; i <= r % 3; ++i) prompt.push_back(5 + 7 * r);
    engine.submit(prompt, {.max_new_tokens = kNewTokens + r % 2, .ignore_eos = true, .logprobs = 0});
  }
  Answers answers;
  while (engine.step([&](const RequestOutput& output) {
    EXPECT_NE(output.finish_reason, FinishReason::kError) << output.message;
    Answer& answer = answers.by_request[output.id];
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    answer.logprobs.insert(answer.logprobs.end(), output.logprobs.logprobs.begin(),
                           output.logprobs.logprobs.end());
  }))
    engine.check_memory();
  answers.stats = engine.stats();
  return answers;
}

// Calls expect_same(results with cascade attention, results without), for prompts that all share a prefix and
// for prompts of which some do not.
template <class ExpectSame>
void compare_with_and_without(EngineConfig config, const ExpectSame& expect_same) {
  for (const bool mixed : {false, true}) {
    config.disable_cascade_attention = false;
    const Answers shared = complete(config, kShared, mixed);
    EXPECT_GE(shared.stats.num_cascade_steps, kNewTokens - 2);
    config.disable_cascade_attention = true;
    const Answers apart = complete(config, kShared, mixed);
    EXPECT_EQ(apart.stats.num_cascade_steps, 0);
    expect_same(shared, apart);
  }
}

void expect_equal(const Answers& one, const Answers& other) {
  ASSERT_EQ(one.by_request.size(), other.by_request.size());
  for (const auto& [id, answer] : one.by_request) {
    const Answer& expected = other.by_request.at(id);
    EXPECT_EQ(answer.tokens, expected.tokens) << "request " << id;
    ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < answer.logprobs.size(); ++i)
      EXPECT_NEAR(answer.logprobs[i], expected.logprobs[i], 2e-4f) << "request " << id << ", token " << i;
  }
}

struct Case {
  std::string_view model, backend;
  int page_size;
};

class CascadeAttention : public testing::TestWithParam<Case> {};

TEST_P(CascadeAttention, MatchesAttentionWithoutCascade) {
  compare_with_and_without(make_config(GetParam().model, GetParam().backend, GetParam().page_size),
                           expect_equal);
}

// Runs the same comparison on a GPU, where a step with cascade attention runs without CUDA graphs and the
// next one may replay a graph again.
struct GpuCase {
  std::string_view model, backend;
  int page_size;
  DType dtype;
  float tolerance;
};

class CascadeAttentionOnGpu : public testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
};

// Rounding may swap two tokens of nearly equal probability. Everything after such a token differs and is not
// compared.
void expect_close(const Answers& one, const Answers& other, float tolerance) {
  ASSERT_EQ(one.by_request.size(), other.by_request.size());
  for (const auto& [id, answer] : one.by_request) {
    const Answer& expected = other.by_request.at(id);
    ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < answer.logprobs.size(); ++i) {
      EXPECT_NEAR(answer.logprobs[i], expected.logprobs[i], tolerance) << "request " << id << ", token " << i;
      if (answer.tokens[i] != expected.tokens[i]) break;
    }
  }
}

TEST_P(CascadeAttentionOnGpu, MatchesAttentionWithoutCascade) {
  EngineConfig config = make_config(GetParam().model, GetParam().backend, GetParam().page_size);
  config.device.type = DeviceType::kCuda;
  config.dtype = GetParam().dtype;
  config.kv_cache_dtype = GetParam().dtype;
  config.max_total_tokens = 8192;
  config.cascade_min_bytes = 4096;
  compare_with_and_without(config, [](const Answers& shared, const Answers& apart) {
    expect_close(shared, apart, GetParam().tolerance);
  });
}

INSTANTIATE_TEST_SUITE_P(
    , CascadeAttentionOnGpu,
    testing::Values(GpuCase{"models/attend-tiny", "fa3", 16, DType::kF32, 2e-4f},
                    GpuCase{"models/attend-tiny", "triton", 1, DType::kBF16, 0.1f},
                    GpuCase{"models/attend-tiny", "fa3", 64, DType::kBF16, 0.1f},
                    GpuCase{"tests/goldens/llama-gqa4-hd32", "flashinfer", 16, DType::kF16, 0.02f},
                    GpuCase{"tests/goldens/gemma2-caps-window", "flashinfer", 16, DType::kBF16, 0.1f},
                    GpuCase{"tests/goldens/gemma3-local-rope", "fa3", 16, DType::kF32, 2e-4f}),
    [](const auto& tested) {
      std::string name = std::string(tested.param.model.substr(tested.param.model.rfind('/') + 1)) + "_" +
                         std::string(tested.param.backend) + "_pages_of_" +
                         std::to_string(tested.param.page_size) + "_" +
                         std::string(to_string(tested.param.dtype));
      std::ranges::replace(name, '-', '_');
      return name;
    });

// One model per kind of index, and one with windows in some layers.
INSTANTIATE_TEST_SUITE_P(
    , CascadeAttention,
    testing::Values(Case{"models/attend-tiny", "cpu", 16}, Case{"models/attend-tiny", "cpu", 1},
                    Case{"models/attend-tiny", "fa3", 16}, Case{"models/attend-tiny", "flashinfer", 16},
                    Case{"models/attend-tiny", "flashinfer", 1}, Case{"models/attend-tiny", "triton", 64},
                    Case{"tests/goldens/llama-gqa4-hd32", "cpu", 16},
                    Case{"tests/goldens/gemma2-caps-window", "cpu", 16},
                    Case{"tests/goldens/gemma3-local-rope", "fa3", 16}),
    [](const auto& tested) {
      std::string name = std::string(tested.param.model.substr(tested.param.model.rfind('/') + 1)) + "_" +
                         std::string(tested.param.backend) + "_pages_of_" +
                         std::to_string(tested.param.page_size);
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(CascadeAttentionChoice, IsSkippedWhenItSavesTooFewReads) {
  EXPECT_EQ(complete(make_config("models/attend-tiny", "cpu", 16), /*num_shared=*/16).stats.num_cascade_steps,
            0);
  EXPECT_EQ(complete(make_config("models/attend-tiny", "cpu", 16), /*num_shared=*/0).stats.num_cascade_steps,
            0);
}

TEST(CascadeAttentionChoice, IsOffInDeterministicMode) {
  EngineConfig config = make_config("models/attend-tiny", "cpu", 16);
  config.deterministic_inference = true;
  EXPECT_EQ(complete(config).stats.num_cascade_steps, 0);
}

TEST(CascadeAttentionChoice, RequiresAPrefixCache) {
  EngineConfig config = make_config("models/attend-tiny", "cpu", 16);
  config.disable_radix_cache = true;
  EXPECT_EQ(complete(config).stats.num_cascade_steps, 0);
}

TEST(CascadeAttentionChoice, RequiresAFullAttentionLayerWithoutSinks) {
  EXPECT_EQ(
      Engine(make_config("tests/goldens/gpt-oss-sinks-window", "cpu", 16)).info().target().cascade_min_keys,
      0);
  EXPECT_EQ(
      Engine(make_config("tests/goldens/mistral-window-hd128", "cpu", 16)).info().target().cascade_min_keys,
      0);
  EXPECT_GT(
      Engine(make_config("tests/goldens/gemma2-caps-window", "cpu", 16)).info().target().cascade_min_keys, 0);
}

}  // namespace
}  // namespace attend
