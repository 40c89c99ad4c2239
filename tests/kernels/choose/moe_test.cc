// Selection of MoE kernels (kernels/moe/cuda/choose.h).
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string_view>

#include "attend/kernels/moe/cuda/choose.h"
#include "tests/kernels/choose/gpus.h"

namespace attend::kernels::cuda {
namespace {

using testing_choose::kA100;
using testing_choose::kGpus;
using testing_choose::kH100;
using testing_choose::kL40S;

MoeProblem make_experts(int64_t num_tokens, WeightFormat format = WeightFormat::kPlain) {
  MoeProblem problem{.num_tokens = num_tokens,
                     .num_experts = 128,
                     .top_k = 8,
                     .hidden_size = 2048,
                     .intermediate_size = 768};
  problem.gate_up = {.format = format, .in_features = 2048, .group_ins = 32};
  problem.down = {.format = format, .in_features = 768, .group_ins = 32};
  if (has_eight_bits(format)) problem.gate_up.group_ins = problem.down.group_ins = 128;
  return problem;
}

// Calls fn for experts of all kinds, numbers of tokens and alignments on every GPU.
void for_each_experts(const std::function<void(const MoeProblem&, const GpuFacts&)>& fn) {
  for (const GpuFacts& gpu : kGpus)
    for (const WeightFormat format : {WeightFormat::kPlain, WeightFormat::kFp8, WeightFormat::kInt8,
                                      WeightFormat::kInt4, WeightFormat::kMxFp4})
      for (const int64_t num_tokens : {1, 2, 16, 48, 49, 100, 256, 257, 512, 4096})
        for (const int64_t hidden_size : {36, 64, 2048, 2880, 4096})
          for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
            for (unsigned flags = 0; flags < 64; ++flags) {
              MoeProblem problem = make_experts(num_tokens, format);
              problem.hidden_size = problem.gate_up.in_features = hidden_size;
              problem.dtype = dtype;
              problem.aligned = (flags & 1) == 0;
              problem.alternating = (flags & 2) != 0;
              problem.batch_invariant = (flags & 4) != 0;
              problem.gate_up.aligned = (flags & 8) == 0;
              problem.down.scales_alignment = (flags & 16) == 0 ? 16 : 4;
              problem.down.reorders = (flags & 32) != 0;
              fn(problem, gpu);
            }
}

MoeKernel kernel_for(const MoeProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu).row.kernel;
}

TEST(ChooseMoe, FindsAKernelForEveryProblemAndUsesEveryKernel) {
  std::set<std::string_view> reached;
  for_each_experts([&](const MoeProblem& problem, const GpuFacts& gpu) {
    const MoeRow& row = choose(problem, gpu).row;
    EXPECT_TRUE(row.supports(problem, gpu)) << row.name;
    reached.insert(row.name);
  });
  for (const MoeRow& row : moe_rows())
    EXPECT_TRUE(reached.contains(row.name)) << row.name << ": no problem on any GPU selects it";
}

TEST(ChooseMoe, UsesTheGroupedGemmForBatchInvariantRows) {
  for (const GpuFacts& gpu : kGpus)
    for (const int64_t num_tokens : {1, 8, 100, 4096})
      for (const WeightFormat format : {WeightFormat::kPlain, WeightFormat::kMxFp4, WeightFormat::kFp8}) {
        MoeProblem problem = make_experts(num_tokens, format);
        problem.batch_invariant = true;
        EXPECT_EQ(kernel_for(problem, gpu), MoeKernel::kGrouped);
        EXPECT_FALSE(choose(problem, gpu).sums_experts);
      }
}

TEST(ChooseMoe, AddsASharedExpertOfWholePartsForOneToken) {
  const auto adds = [](int64_t num_tokens, int64_t num_parts,
                       const std::function<void(MoeProblem&)>& change) {
    MoeProblem problem = make_experts(num_tokens);
    problem.num_shared_parts = num_parts;
    change(problem);
    return choose(problem, kH100).adds_shared;
  };
  const auto as_is = [](MoeProblem&) {};
  EXPECT_TRUE(adds(1, 1, as_is));
  EXPECT_TRUE(adds(1, 2, [](MoeProblem& problem) { problem.gated = false; }));
  EXPECT_FALSE(adds(1, 0, as_is));
  EXPECT_FALSE(adds(1, 9, as_is));  // more parts than the scratch has rows for
  EXPECT_FALSE(adds(2, 1, as_is));
  EXPECT_FALSE(adds(1, 1, [](MoeProblem& problem) { problem.batch_invariant = true; }));
  EXPECT_FALSE(adds(1, 1, [](MoeProblem& problem) { problem.top_k = 16; }));
}

TEST(ChooseMoe, ComputesExpertsWithoutAGateOfOneTokenInTilesOf16Outputs) {
  MoeProblem problem = make_experts(1);
  problem.gated = false;
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kSingleToken);
  problem.intermediate_size = problem.down.in_features = 776;
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kGrouped);
  problem.gated = true;
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kSingleToken);
}

TEST(ChooseMoe, UsesTheNaiveKernelIfTensorCoresCannot) {
  const auto expect_naive = [](const std::function<void(MoeProblem&)>& change) {
    for (const GpuFacts& gpu : kGpus) {
      MoeProblem problem = make_experts(16);
      change(problem);
      EXPECT_EQ(kernel_for(problem, gpu), MoeKernel::kNaive);
    }
  };
  expect_naive([](auto& p) { p.dtype = DType::kF32; });
  expect_naive([](auto& p) { p.aligned = false; });
  expect_naive([](auto& p) { p.down.aligned = false; });
  expect_naive([](auto& p) { p.hidden_size = p.gate_up.in_features = 36; });
  expect_naive([](auto& p) { p = make_experts(16, WeightFormat::kFp8), p.down.group_ins = 32; });
}

// 16 tokens yield one row per expert on average.
TEST(ChooseMoe, UsesTallerTilesForMoreRowsPerExpert) {
  const auto expect_plain = [](int64_t num_tokens, const GpuFacts& gpu, std::string_view name) {
    EXPECT_EQ(choose(make_experts(num_tokens), gpu).row.name, name) << num_tokens;
  };
  expect_plain(1, kH100, "single-token experts");
  expect_plain(2, kH100, "skinny experts");
  expect_plain(48, kH100, "skinny experts");
  expect_plain(49, kH100, "grouped GEMM of 16 rows");
  expect_plain(255, kH100, "grouped GEMM of 16 rows");
  expect_plain(256, kH100, "expert tiles (sm90)");
  expect_plain(1, kA100, "single-token experts");
  expect_plain(2, kA100, "grouped GEMM of 16 rows");
  expect_plain(511, kA100, "grouped GEMM of 16 rows");
  expect_plain(512, kA100, "grouped GEMM of 64 rows");
  const auto expect_mxfp4 = [](int64_t num_tokens, const GpuFacts& gpu, std::string_view name) {
    EXPECT_EQ(choose(make_experts(num_tokens, WeightFormat::kMxFp4), gpu).row.name, name) << num_tokens;
  };
  expect_mxfp4(1, kH100, "single-token experts");
  expect_mxfp4(64, kH100, "direct experts");
  expect_mxfp4(65, kH100, "mxfp4 expert tiles (sm90)");
  expect_mxfp4(65, kA100, "quantized grouped GEMM of 16 rows");
  expect_mxfp4(512, kL40S, "quantized grouped GEMM of 64 rows");
}

TEST(ChooseMoe, ReadsMxFp4DirectlyIfScalesAndInputsPermit) {
  const auto kernel_with = [](const std::function<void(MoeProblem&)>& change) {
    MoeProblem problem = make_experts(16, WeightFormat::kMxFp4);
    change(problem);
    return kernel_for(problem, kH100);
  };
  EXPECT_EQ(kernel_with([](auto&) {}), MoeKernel::kDirect);
  EXPECT_EQ(kernel_with([](auto& p) { p.gate_up.scales_alignment = 8; }), MoeKernel::kSkinny);
  EXPECT_EQ(kernel_with([](auto& p) { p.hidden_size = p.gate_up.in_features = 4096; }), MoeKernel::kSkinny);
  EXPECT_EQ(kernel_with([](auto& p) { p.down.scales_alignment = 2; }), MoeKernel::kMxFp4Tiles);
  EXPECT_EQ(kernel_with([](auto& p) { p.dtype = DType::kF16; }), MoeKernel::kGrouped);
  EXPECT_EQ(kernel_with([](auto& p) { p.down.group_ins = 64; }), MoeKernel::kGrouped);
}

TEST(ChooseMoe, UsesTheGroupedGemmForAlternatingRowsAndReorderedInputs) {
  MoeProblem problem = make_experts(4096);
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kExpertTiles);
  problem.alternating = true;
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kGrouped);
  problem = make_experts(1, WeightFormat::kInt4);
  problem.gate_up.reorders = true;
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kGrouped);
}

TEST(ChooseMoe, SumsExpertsInTheGemmIfItsCtasFillTheSms) {
  EXPECT_TRUE(choose(make_experts(1), kH100).sums_experts);
  MoeProblem problem = make_experts(16);  // 128 CTAs
  EXPECT_TRUE(choose(problem, kH100).sums_experts);
  problem.hidden_size = problem.gate_up.in_features = 2880;  // 180 CTAs
  EXPECT_EQ(kernel_for(problem, kH100), MoeKernel::kSkinny);
  EXPECT_FALSE(choose(problem, kH100).sums_experts);
  EXPECT_FALSE(choose(make_experts(16, WeightFormat::kMxFp4), kH100).sums_experts);
  EXPECT_FALSE(choose(make_experts(4096), kH100).sums_experts);
}

TEST(ChooseMoe, ReadsItsThresholdsFromTheTuning) {
  MoeTuning tuning = moe_tuning(kH100);
  tuning.single_token_max_tokens = 0;
  EXPECT_EQ(choose(make_experts(1), kH100, tuning).row.kernel, MoeKernel::kSkinny);
  tuning.skinny_max_rows = 0;
  EXPECT_EQ(choose(make_experts(1), kH100, tuning).row.kernel, MoeKernel::kGrouped);
  tuning.tiles_min_rows = 0;
  EXPECT_EQ(choose(make_experts(1), kH100, tuning).row.kernel, MoeKernel::kExpertTiles);
}

}  // namespace
}  // namespace attend::kernels::cuda
