// Bytes that the model benchmarks expect a step to read.
#include "attend/bench/model/model_steps.h"

#include <gtest/gtest.h>

#include "attend/checkpoint/checkpoint.h"

namespace attend::bench {
namespace {

// Models with quantized attention, experts, or both, each in another format.
TEST(ModelSteps, CountSelectedExpertsInTheirStoredFormat) {
  for (const char* golden : {"qwen3-moe-fp8-int4", "gpt-oss-mxfp4", "mixtral-awq", "mixtral-top2"}) {
    SCOPED_TRACE(golden);
    EngineConfig config;
    config.model_path = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / golden;
    config.device = Device{};
    const Engine engine(config);
    double experts = 0.0, others = 0.0;
    const auto files = open_checkpoint(config.model_path)->open_tensors();
    for (const std::string& name : files->names()) {
      const auto bytes = static_cast<double>(files->tensor(name).view().num_bytes());
      if (name.find(".experts.") != std::string::npos)
        experts += bytes;
      else if (name.find("embed_tokens") == std::string::npos)
        others += bytes;
    }
    const auto& moe = std::get<MoeMlpSpec>(engine.model_spec().layers.back().mlp);
    const double selected = experts * moe.top_k / moe.num_experts;
    // Scales of 16 bits may be stored as 32 bits, and act-order indices and zero points in another layout.
    EXPECT_NEAR(decode_bytes(engine, 1, 0), others + selected, 0.05 * (others + selected));
  }
}

}  // namespace
}  // namespace attend::bench
