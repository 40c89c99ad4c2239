// Rope of type dynamic, whose angles depend on lengths that grow step by step: on a GPU under graphs too.
#include <gtest/gtest.h>

#include <vector>

#include "attend/engine/engine.h"
#include "attend/model/safetensors.h"
#include "attend/tensor/cuda.h"
#include "tests/support/gpu_device.h"

namespace attend {
namespace {

using testing_support::kGpu;
using Tokens = std::vector<int32_t>;

class RopeByLength : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam() == kGpu && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
    config_.model_path = ATTEND_SOURCE_DIR "/tests/goldens/llama-rope-dynamic";
    config_.device = GetParam();
    const SafetensorsFile goldens(config_.model_path / "golden.safetensors");
    // The last prompt is longer than what the model's positions reach; the one before it grows past the
    // original length while it decodes.
    for (const char* prompt : {"prompt.0", "prompt.1", "prompt.2"}) {
      prompts_.push_back(read(goldens, std::string(prompt) + ".input_ids"));
      expected_.push_back(read(goldens, std::string(prompt) + ".greedy"));
    }
  }

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
    while (engine.step([&](const StepOutput& output) {
      outputs[static_cast<size_t>(output.id - first)].push_back(output.token_id);
    })) {
    }
    return outputs;
  }

  EngineConfig config_;
  std::vector<Tokens> prompts_, expected_;
};

TEST_P(RopeByLength, GivesTheTokensOfTransformersInABatch) {
  Engine engine(config_);
  EXPECT_EQ(engine.info().graph_sizes.empty(), GetParam() != kGpu);
  EXPECT_EQ(generate(engine), expected_);
}

TEST_P(RopeByLength, GivesTheTokensOfTransformersInChunks) {
  config_.chunked_prefill_size = 40;
  config_.max_running_requests = 4;
  Engine engine(config_);
  EXPECT_EQ(generate(engine), expected_);
}

INSTANTIATE_TEST_SUITE_P(Every, RopeByLength, testing::Values(Device{}, kGpu),
                         [](const auto& test) { return test.param == kGpu ? "gpu" : "cpu"; });

}  // namespace
}  // namespace attend
