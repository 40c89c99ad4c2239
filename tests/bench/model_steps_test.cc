// Bytes that the model benchmarks expect a step to read.
#include "attend/bench/model/model_steps.h"

#include <gtest/gtest.h>

#include "attend/base/error.h"
#include "attend/bench/model/model_shapes.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/model/step_cost.h"

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

TEST(ModelShapes, HaveThePublishedNumberOfParameters) {
  // Those of Gemma 4's small models exclude the encoders of images and audio, 0.45 together, and active ones
  // exclude the embeddings per layer.
  const struct {
    const char* shape;
    double billions, active_billions;
  } models[] = {
      {"llama-3.1-8b", 8.03, 7.5},       {"llama-3.2-1b", 1.24, 1.24},   {"qwen3-0.6b", 0.596, 0.596},
      {"qwen3-30b-a3b", 30.5, 3.0},      {"gpt-oss-20b", 20.9, 3.6},     {"deepseek-v2-lite", 15.7, 2.4},
      {"qwen3-next-80b-a3b", 80.0, 3.6}, {"qwen3.5-35b-a3b", 34.7, 2.9}, {"nemotron-3-nano", 31.6, 3.2},
      {"deepseek-v3", 671.0, 37.0},      {"gemma-4-e2b", 4.65, 2.3},     {"gemma-4-e4b", 7.55, 4.5},
      {"gemma-4-26b-a4b", 25.2, 3.8},    {"gemma-4-31b", 30.7, 30.7},    {"kimi-linear-48b-a3b", 49.1, 3.0}};
  for (const auto& [shape, billions, active_billions] : models) {
    SCOPED_TRACE(shape);
    const StepCosts costs = step_costs(shape_model(shape));
    int64_t weights = costs.head_weights + costs.table_weights;
    for (const GemmShape& gemm : costs.gemms) weights += gemm.out_features * gemm.in_features * gemm.count;
    for (const ExpertCost& experts : costs.experts) weights += experts.weights;
    EXPECT_NEAR(1e-9 * static_cast<double>(weights), billions, 0.02 * billions);
    const auto active = static_cast<double>(costs.gemm_weights + costs.head_weights);
    EXPECT_NEAR(1e-9 * active, active_billions, 0.15 * active_billions);
  }
}

// Heads of published drafts: https://huggingface.co/yuhuili/EAGLE3-LLaMA3.1-Instruct-8B and others.
TEST(ModelShapes, HaveDraftHeadsThatFitTheirTargets) {
  using enum SpeculativeAlgorithm;
  for (const char* shape : {"llama-3.1-8b", "qwen3-0.6b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3"}) {
    SCOPED_TRACE(shape);
    const ModelSpec target = shape_model(shape);
    const ModelSpec eagle3 = fit_draft(shape_draft(kEagle3, target, shape), target);
    EXPECT_EQ(eagle3.head_size(), 32000);
    EXPECT_EQ(eagle3.draft->before_layers.size(), 3u);
    EXPECT_EQ(eagle3.num_layers(), 1);
    EXPECT_NO_THROW(fit_draft(shape_draft(kEagle, target, shape), target));
    EXPECT_THROW(shape_draft(kStandalone, target, shape), Error);
  }
  const ModelSpec llama = shape_model("llama-3.1-8b");
  EXPECT_EQ(std::get<GatedMlpSpec>(shape_draft(kEagle3, llama, "").layers.front().mlp).intermediate_size,
            14336);
  const ModelSpec deepseek = shape_model("deepseek-v3");
  const ModelSpec next = fit_draft(shape_draft(kNextn, deepseek, "deepseek-v3"), deepseek);
  EXPECT_EQ(next.draft->first_layer, 61);
  EXPECT_THROW(shape_draft(kNextn, llama, "llama-3.1-8b"), Error);
}

}  // namespace
}  // namespace attend::bench
