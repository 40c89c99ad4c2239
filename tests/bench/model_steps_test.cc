// What the benches of models say that a step has to read.
#include "attend/bench/model/model_steps.h"

#include <gtest/gtest.h>

#include "attend/checkpoint/checkpoint.h"

namespace attend::bench {
namespace {

// Attention, experts, or both are quantized, each in its own way.
TEST(ModelSteps, ReadExpertsThatAreMetInTheFormatThatTheyHave) {
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
    const double met = experts * moe.top_k / moe.num_experts;
    // Scales of 16 bits may be placed in 32, and act-order and zero points in other words.
    EXPECT_NEAR(decode_bytes(engine, 1, 0), others + met, 0.05 * (others + met));
  }
}

}  // namespace
}  // namespace attend::bench
