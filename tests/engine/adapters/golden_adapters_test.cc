// Engines apply the LoRA adapters of tests/goldens/lora: each request of a batch gets the log probabilities
// and the answer that PEFT computes with its adapter, and those of the model without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::kGpu;
using Tokens = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kGoldenModels = fs::path(ATTEND_SOURCE_DIR) / "tests/goldens";
constexpr double kTolerance = 1e-4;
constexpr int kNumPrompts = 4;

Tokens read_tokens(const SafetensorsFile& file, const std::string& name) {
  const Tensor tensor = file.tensor(name);
  const View<int32_t> values = tensor.span<int32_t>();
  return {values.begin(), values.end()};
}

struct AdapterAnswer {
  Tokens tokens;
  std::vector<float> logprobs;  // of the prompt
  std::string message;
};

// A model, and the device that it runs on.
class GoldenAdapters : public testing::TestWithParam<std::tuple<const char*, Device>> {
 protected:
  // Request with an adapter, or none, and its results in PEFT.
  struct Expected {
    std::string adapter;
    Tokens prompt, greedy;
    std::vector<float> logprobs;  // empty: not compared
  };

  static const char* model() { return std::get<0>(GetParam()); }
  static Device device() { return std::get<1>(GetParam()); }

  void SetUp() override {
    if (device() == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    config_.model_path = kGoldenModels / model();
    config_.device = device();
    if (device() == kGpu) {
      // Graphs for few sizes, and a small pool.
      config_.cuda_graph_max_bs = 20;
      config_.max_total_tokens = 8192;
    }
    // Neither K/V of 16-bit models nor inputs of products with their weights are rounded.
    config_.dtype = config_.kv_cache_dtype = DType::kF32;
    const SafetensorsFile base(config_.model_path / "golden.safetensors");
    for (const auto& entry : fs::directory_iterator(kGoldenModels / "lora" / model()))
      config_.lora_paths.push_back({.name = entry.path().filename(), .path = entry.path()});
    std::ranges::sort(config_.lora_paths, {}, &AdapterPath::name);
    ASSERT_FALSE(config_.lora_paths.empty());
    // Neighboring requests have different adapters.
    for (int i = 0; i < kNumPrompts; ++i) {
      const std::string prompt = "prompt." + std::to_string(i);
      const Tokens ids = read_tokens(base, prompt + ".input_ids");
      requests_.push_back(
          {.adapter = "", .prompt = ids, .greedy = read_tokens(base, prompt + ".greedy"), .logprobs = {}});
      for (const AdapterPath& adapter : config_.lora_paths) {
        const SafetensorsFile golden(adapter.path / "golden.safetensors");
        Expected& request = requests_.emplace_back(Expected{.adapter = adapter.name,
                                                            .prompt = ids,
                                                            .greedy = read_tokens(golden, prompt + ".greedy"),
                                                            .logprobs = {}});
        if (golden.find(prompt + ".logprobs") == nullptr) continue;
        const Tensor logprobs = golden.tensor(prompt + ".logprobs");
        const View<float> values = logprobs.span<float>();
        request.logprobs.assign(values.begin(), values.end());
      }
    }
  }

  static std::vector<AdapterAnswer> run(Engine& engine, const std::vector<Expected>& requests,
                                        bool logprobs) {
    std::map<RequestId, size_t> index;
    for (const Expected& request : requests) {
      SamplingParams params{.max_new_tokens = static_cast<int>(request.greedy.size()), .ignore_eos = true};
      if (logprobs) params.prompt_logprobs = 0;
      const RequestId id =
          engine.submit({.prompt = request.prompt, .params = params, .adapter = request.adapter});
      index.emplace(id, index.size());
    }
    std::vector<AdapterAnswer> answers(requests.size());
    while (engine.step([&](const RequestOutput& output) {
      AdapterAnswer& answer = answers[index.at(output.id)];
      answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
      const auto& prompt = output.prompt_logprobs.logprobs;
      answer.logprobs.insert(answer.logprobs.end(), prompt.begin(), prompt.end());
      answer.message = output.message;
    }))
      engine.check_memory();
    return answers;
  }

  void expect_goldens(Engine& engine, bool logprobs = true) const {
    const std::vector<AdapterAnswer> answers = run(engine, requests_, logprobs);
    for (size_t i = 0; i < requests_.size(); ++i) {
      const Expected& request = requests_[i];
      SCOPED_TRACE(testing::Message()
                   << "adapter " << request.adapter << ", prompt of " << request.prompt.size());
      EXPECT_EQ(answers[i].message, "");
      EXPECT_EQ(answers[i].tokens, request.greedy);
      if (!logprobs || request.logprobs.empty()) continue;
      ASSERT_EQ(answers[i].logprobs.size(), request.logprobs.size());
      for (size_t token = 0; token < request.logprobs.size(); ++token)
        EXPECT_NEAR(answers[i].logprobs[token], request.logprobs[token],
                    kTolerance * std::max(1.0, std::abs(static_cast<double>(request.logprobs[token]))))
            << "token " << token + 1;
    }
  }

  EngineConfig config_;
  std::vector<Expected> requests_;
};

TEST_P(GoldenAdapters, MatchPeftInABatch) {
  Engine engine(config_);
  expect_goldens(engine);
}

TEST_P(GoldenAdapters, MatchPeftInChunksAndAfterPreemption) {
  config_.chunked_prefill_size = 24;
  config_.max_running_requests = 5;
  config_.backend_options.page_size = 1;
  config_.max_total_tokens = 330;
  config_.schedule.conservativeness = 0.0;
  Engine engine(config_);
  expect_goldens(engine, /*logprobs=*/false);
}

TEST_P(GoldenAdapters, MatchPeftWithDrafts) {
  config_.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                         .num_draft_tokens = 4,
                         .ngram_min_match_window_size = 1,
                         .disable_by_batch_size = 32};
  Engine engine(config_);
  expect_goldens(engine, /*logprobs=*/false);
  EXPECT_GT(engine.stats().drafts.num_drafted, 0);
}

TEST_P(GoldenAdapters, ShareCachedPrefixesOnlyWithTheSameAdapter) {
  config_.backend_options.page_size = 1;
  Engine engine(config_);
  expect_goldens(engine, /*logprobs=*/false);
  EXPECT_EQ(engine.stats().num_cached_tokens, 0);
  expect_goldens(engine, /*logprobs=*/false);
  int64_t num_shared = 0;
  for (const Expected& request : requests_) num_shared += std::ssize(request.prompt) - 1;
  EXPECT_EQ(engine.stats().num_cached_tokens, num_shared);
}

TEST_P(GoldenAdapters, GiveARequestTheSameBitsAloneAndInABatchInDeterministicMode) {
  config_.deterministic_inference = true;
  config_.disable_radix_cache = true;
  Engine engine(config_);
  expect_goldens(engine);
  const std::vector<AdapterAnswer> batch = run(engine, requests_, /*logprobs=*/true);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const std::vector<AdapterAnswer> single = run(engine, {requests_[i]}, /*logprobs=*/true);
    EXPECT_EQ(single.front().logprobs, batch[i].logprobs) << "request " << i;
    EXPECT_EQ(single.front().tokens, batch[i].tokens) << "request " << i;
  }
}

// Ranks divide rows and columns of the adapters like those of the base.
using GoldenAdaptersOfRanks = GoldenAdapters;
TEST_P(GoldenAdaptersOfRanks, MatchPeftOnTwoRanks) {
  if (device() == kGpu && cuda::device_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  config_.tp_size = 2;
  Engine engine(config_);
  expect_goldens(engine);
}

using GoldenAdaptersOnGpu = GoldenAdapters;

TEST_P(GoldenAdaptersOnGpu, HaveAtMostTwiceTheErrorOfPeftIn16Bits) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    // Two of its routers' logits differ by less than bfloat16's rounding, so other experts are chosen.
    if (dtype == DType::kBF16 && std::string_view(model()) == "deepseek-v3") continue;
    SCOPED_TRACE(to_string(dtype));
    config_.dtype = config_.kv_cache_dtype = dtype;
    Engine engine(config_);
    const std::vector<AdapterAnswer> answers = run(engine, requests_, /*logprobs=*/true);
    for (const AdapterPath& adapter : config_.lora_paths) {
      double largest = 0.0;
      for (size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i].adapter != adapter.name || requests_[i].logprobs.empty()) continue;
        EXPECT_EQ(answers[i].message, "");
        ASSERT_EQ(answers[i].logprobs.size(), requests_[i].logprobs.size());
        for (size_t token = 0; token < answers[i].logprobs.size(); ++token)
          largest = std::max(largest, static_cast<double>(std::abs(answers[i].logprobs[token] -
                                                                   requests_[i].logprobs[token])));
      }
      std::ifstream file(adapter.path / "rounding.json");
      const double of_peft = nlohmann::json::parse(file).at(std::string(to_string(dtype)));
      EXPECT_LE(largest, 2.0 * of_peft + 1e-3) << "adapter " << adapter.name;
    }
  }
}

TEST_P(GoldenAdaptersOnGpu, GiveTheBitsOfEagerStepsUnderGraphs) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(to_string(dtype));
    config_.dtype = config_.kv_cache_dtype = dtype;
    config_.disable_cuda_graph = false;
    Engine with_graphs(config_);
    EXPECT_FALSE(with_graphs.info().target().graph_sizes.empty());
    const std::vector<AdapterAnswer> replayed = run(with_graphs, requests_, /*logprobs=*/false);
    config_.disable_cuda_graph = true;
    Engine eager(config_);
    const std::vector<AdapterAnswer> expected = run(eager, requests_, /*logprobs=*/false);
    for (size_t i = 0; i < requests_.size(); ++i) EXPECT_EQ(replayed[i].tokens, expected[i].tokens);
  }
}

TEST_P(GoldenAdaptersOnGpu, GiveARequestTheSameBitsIn16BitsInDeterministicMode) {
  config_.dtype = config_.kv_cache_dtype = DType::kBF16;
  config_.deterministic_inference = true;
  config_.disable_radix_cache = true;
  Engine engine(config_);
  const std::vector<AdapterAnswer> batch = run(engine, requests_, /*logprobs=*/true);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const std::vector<AdapterAnswer> single = run(engine, {requests_[i]}, /*logprobs=*/true);
    EXPECT_EQ(single.front().logprobs, batch[i].logprobs) << "request " << i;
    EXPECT_EQ(single.front().tokens, batch[i].tokens) << "request " << i;
  }
}

TEST_P(GoldenAdaptersOnGpu, AreLoadedAndUnloadedBetweenSteps) {
  const std::vector<AdapterPath> paths = std::exchange(config_.lora_paths, {});
  config_.enable_lora = true;
  Engine engine(config_);
  for (int round = 0; round < 2; ++round) {
    for (const AdapterPath& path : paths) engine.load_adapter(path);
    expect_goldens(engine, /*logprobs=*/false);
    for (const AdapterPath& path : paths) engine.unload_adapter(path.name);
  }
  EXPECT_TRUE(engine.adapters().empty());
}

std::string model_name(const testing::TestParamInfo<std::tuple<const char*, Device>>& test) {
  std::string name = std::get<0>(test.param);
  std::ranges::replace(name, '-', '_');
  return name + (std::get<1>(test.param) == kGpu ? "_gpu" : "");
}

constexpr const char* kModels[] = {
    "llama-gqa4-hd32", "phi3-partial-window",  "gpt2-bare-names",  "gpt-neox-sequential", "gemma3-multimodal",
    "llama-bf16",      "qwen2-gptq-act-order", "qwen3-fp8-blocks", "qwen3-5-text-tied",   "lfm2-conv",
    "bamba-mamba2",    "falcon-h1-norm-first", "deepseek-v3"};
constexpr Device kDevices[] = {Device{}, kGpu};

INSTANTIATE_TEST_SUITE_P(Models, GoldenAdapters,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kDevices)),
                         model_name);
INSTANTIATE_TEST_SUITE_P(Models, GoldenAdaptersOfRanks,
                         testing::Combine(testing::Values("llama-gqa4-hd32", "gpt-neox-sequential",
                                                          "llama-bf16"),
                                          testing::ValuesIn(kDevices)),
                         model_name);
INSTANTIATE_TEST_SUITE_P(Models, GoldenAdaptersOnGpu,
                         testing::Combine(testing::ValuesIn(kModels), testing::Values(kGpu)), model_name);

}  // namespace
}  // namespace attend
