// Engines serve the tiny models of tests/goldens. In a batch, in chunks and after preemption, each request
// gets the tokens of transformers. The angles of dynamic and longrope RoPE depend on the length, which grows
// in every step, on a GPU also under graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/engine/engine.h"
#include "attend/tensor/cuda.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::kGpu;
using Tokens = std::vector<int32_t>;

class GoldenModel : public testing::TestWithParam<std::tuple<const char*, Device>> {
 protected:
  void SetUp() override {
    if (device() == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    config_.model_path = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / std::get<0>(GetParam());
    config_.device = device();
    const SafetensorsFile goldens(config_.model_path / "golden.safetensors");
    for (int i = 0; goldens.find("prompt." + std::to_string(i) + ".greedy") != nullptr; ++i) {
      const std::string prompt = "prompt." + std::to_string(i);
      Tokens ids = read(goldens, prompt + ".input_ids");
      // One prompt of llama-rope-dynamic is longer than the model's original context.
      if (ids.size() > 128 && config_.model_path.filename() == "llama-rope-dynamic") continue;
      prompts_.push_back(std::move(ids));
      expected_.push_back(read(goldens, prompt + ".greedy"));
    }
  }

  static Device device() { return std::get<1>(GetParam()); }

  static Tokens read(const SafetensorsFile& file, const std::string& name) {
    const Tensor tensor = file.tensor(name);
    const View<int32_t> values = tensor.span<int32_t>();
    return {values.begin(), values.end()};
  }

  std::vector<Tokens> generate(Engine& engine) const {
    std::vector<Tokens> outputs(prompts_.size());
    RequestId first = 0;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const RequestId id = engine.submit(
          prompts_[i], {.max_new_tokens = static_cast<int>(expected_[i].size()), .ignore_eos = true});
      if (i == 0) first = id;
    }
    while (engine.step([&](const RequestOutput& output) {
      Tokens& tokens = outputs[static_cast<size_t>(output.id - first)];
      tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
    })) {
    }
    return outputs;
  }

  EngineConfig config_;
  std::vector<Tokens> prompts_, expected_;
};

TEST_P(GoldenModel, MatchesTheTokensOfTransformersInABatch) {
  Engine engine(config_);
  EXPECT_EQ(engine.info().target().graph_sizes.empty(), device() != kGpu);
  EXPECT_EQ(generate(engine), expected_);
}

TEST_P(GoldenModel, MatchesTheTokensOfTransformersInChunks) {
  config_.chunked_prefill_size = 40;
  config_.max_running_requests = 4;
  Engine engine(config_);
  EXPECT_EQ(generate(engine), expected_);
}

TEST_P(GoldenModel, MatchesTheTokensOfTransformersWhenThePoolIsSmall) {
  config_.backend_options.page_size = 1;
  config_.max_total_tokens = 24;            // more than one answer, fewer than all
  config_.schedule.conservativeness = 0.0;  // reserves nothing for the answers of running requests
  for (const Tokens& prompt : prompts_) config_.max_total_tokens += static_cast<int>(prompt.size());
  Engine engine(config_);
  EXPECT_EQ(generate(engine), expected_);
  EXPECT_GT(engine.num_preemptions(), 0);
}

using DeterministicGoldenModel = GoldenModel;

TEST_P(DeterministicGoldenModel, MatchesTheTokensOfTransformersInABatch) {
  config_.deterministic_inference = true;
  Engine engine(config_);
  EXPECT_EQ(generate(engine), expected_);
}

using DraftedGoldenModel = GoldenModel;

TEST_P(DraftedGoldenModel, MatchesTheTokensOfTransformersWithDrafts) {
  // Matches of one token, so that most steps have drafts, right or wrong.
  config_.speculation = {.algorithm = SpeculativeAlgorithm::kNgram,
                         .num_draft_tokens = 4,
                         .ngram_min_match_window_size = 1,
                         .disable_by_batch_size = 16};
  Engine engine(config_);
  EXPECT_EQ(generate(engine), expected_);
  const DraftCounts& drafts = engine.stats().drafts;
  EXPECT_GT(drafts.num_drafted, drafts.num_accepted);
}

std::string model_and_device(const testing::TestParamInfo<std::tuple<const char*, Device>>& test) {
  std::string name = std::get<0>(test.param);
  std::ranges::replace(name, '-', '_');
  return name + (std::get<1>(test.param) == kGpu ? "_gpu" : "_cpu");
}

INSTANTIATE_TEST_SUITE_P(
    Every, GoldenModel,
    testing::Combine(testing::Values("llama-rope-dynamic", "phi3-longrope", "gemma2-caps-window",
                                     "gemma3-local-rope", "olmo2-post-norms", "glm4-interleaved-rope",
                                     "qwen3-some-layers-slide", "exaone4-some-layers-rotate",
                                     "ministral3-temperature", "granite-bf16-tied", "llama-mqa24-hd16",
                                     "gpt-oss-sinks-window", "llama4-chunks", "gemma4-shared-kv",
                                     "gemma4-experts", "gemma4-wide-heads", "gemma4-per-layer-config"),
                     testing::Values(Device{}, kGpu)),
    model_and_device);
// On a GPU under graphs: split-KV with fixed splits, with few and with many rows per KV head.
INSTANTIATE_TEST_SUITE_P(Heads, DeterministicGoldenModel,
                         testing::Combine(testing::Values("llama-gqa4-hd32", "llama-mqa24-hd16"),
                                          testing::Values(Device{}, kGpu)),
                         model_and_device);
constexpr const char* kRecurrentModels[] = {
    "qwen3-next-grouped",  "qwen3-5-nested",     "qwen3-5-moe-fused", "bamba-mamba2",
    "falcon-h1-gate-only", "nemotron-h-experts", "lfm2-moe"};
INSTANTIATE_TEST_SUITE_P(Recurrent, GoldenModel,
                         testing::Combine(testing::ValuesIn(kRecurrentModels),
                                          testing::Values(Device{}, kGpu)),
                         model_and_device);
INSTANTIATE_TEST_SUITE_P(Recurrent, DraftedGoldenModel,
                         testing::Combine(testing::ValuesIn(kRecurrentModels),
                                          testing::Values(Device{}, kGpu)),
                         model_and_device);
// The weights are stored in 16 bits; a GPU would compute in 16 bits.
INSTANTIATE_TEST_SUITE_P(OnCpu, GoldenModel,
                         testing::Combine(testing::Values("gpt-oss-defaults", "llama4-interleaved",
                                                          "qwen3-next-some-dense"),
                                          testing::Values(Device{})),
                         model_and_device);

}  // namespace
}  // namespace attend
