// Selection of GEMM kernels for dense layers (kernels/gemm/cuda/choose.h).
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "attend/kernels/gemm/cuda/choose.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"
#include "tests/kernels/choose/gpus.h"

namespace attend::kernels::cuda {
namespace {

using testing_choose::kGpus;
using testing_choose::kH100;
using testing_choose::kL40S;

constexpr GemmProblem kLayer{.num_rows = 8, .in_features = 4096, .out_features = 4096};

// Calls fn for layers of all kinds, sizes and alignments on every GPU.
void for_each_problem(const std::function<void(const GemmProblem&, const GpuFacts&)>& fn) {
  for (const GpuFacts& gpu : kGpus)
    for (const int64_t num_rows : {1, 8, 16, 17, 32, 33, 64, 65, 100, 128, 129, 192, 256, 257, 4096})
      for (const int64_t in_features : {1, 12, 64, 1024, 4096, 14336})
        for (const int64_t out_features : {1, 4, 8, 24, 1024, 2048, 3072, 4096, 14336, 128256})
          for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
            for (const GemmNorm norm : {GemmNorm::kNone, GemmNorm::kInline, GemmNorm::kDeferred})
              for (unsigned flags = 0; flags < 64; ++flags)
                fn({.num_rows = num_rows,
                    .in_features = in_features,
                    .out_features = out_features,
                    .dtype = dtype,
                    .out_dtype = (flags & 1) != 0 ? DType::kF32 : dtype,
                    .gated = (flags & 2) != 0,
                    .batch_invariant = (flags & 4) != 0,
                    .x_aligned = (flags & 8) == 0,
                    .weight_aligned = (flags & 16) == 0,
                    .norm = norm,
                    .norm_dtype = (flags & 32) != 0 ? DType::kF32 : dtype},
                   gpu);
}

bool supports(GemmKernel kernel, const GemmProblem& problem, const GpuFacts& gpu) {
  return gemm_row(kernel).supports(problem, gpu);
}

// Calls fn for layers with a quantized weight.
void for_each_quantized_problem(const std::function<void(const GemmProblem&, const GpuFacts&)>& fn) {
  for (const GpuFacts& gpu : kGpus)
    for (const WeightFormat format :
         {WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4, WeightFormat::kMxFp4})
      for (const int64_t num_rows : {1, 64, 65, 4096})
        for (const int64_t in_features : {45, 96, 4096})
          for (const int64_t group_ins : {32, 48, 128, 1 << 20})
            for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
              for (unsigned flags = 0; flags < 64; ++flags)
                fn({.num_rows = num_rows,
                    .in_features = in_features,
                    .out_features = 4096,
                    .dtype = dtype,
                    .out_dtype = dtype,
                    .batch_invariant = (flags & 1) != 0,
                    .x_aligned = (flags & 2) == 0,
                    .weight_aligned = (flags & 4) == 0,
                    .norm_dtype = dtype,
                    .format = format,
                    .group_outs = format == WeightFormat::kFp8 && group_ins == 128 ? 128 : 1,
                    .group_ins = group_ins,
                    .reorders = (flags & 8) != 0,
                    .has_workspace = (flags & 16) != 0,
                    .rounds_x = (flags & 32) != 0},
                   gpu);
}

TEST(ChooseGemm, FindsAKernelForEveryProblemAndUsesEveryKernel) {
  std::set<GemmKernel> reached;
  for_each_problem([&](const GemmProblem& problem, const GpuFacts& gpu) {
    const GemmRow& row = choose(problem, gpu);
    EXPECT_TRUE(row.supports(problem, gpu)) << row.name;
    reached.insert(row.kernel);
  });
  for_each_quantized_problem([&](const GemmProblem& problem, const GpuFacts& gpu) {
    const GemmKernel kernel = choose(problem, gpu).kernel;
    EXPECT_TRUE(kernel == GemmKernel::kSkinnyQuantized || kernel == GemmKernel::kFp8 ||
                kernel == GemmKernel::kFp8Blocks || kernel == GemmKernel::kScaledQuantized ||
                kernel == GemmKernel::kSwapAbQuantized || kernel == GemmKernel::kQuantized ||
                kernel == GemmKernel::kDequantizeThenGemm || kernel == GemmKernel::kNaive)
        << gemm_row(kernel).name;
    // These kernels require e4m3, or the scales of int4.
    if (problem.format == WeightFormat::kInt8) {
      EXPECT_FALSE(kernel == GemmKernel::kFp8 || kernel == GemmKernel::kFp8Blocks ||
                   kernel == GemmKernel::kScaledQuantized)
          << gemm_row(kernel).name;
    }
    reached.insert(kernel);
  });
  // Every kernel is used: cuBLASLt supports all problems except batch-invariant ones, and the naive kernel
  // computes what no tensor-core kernel supports.
  EXPECT_EQ(reached.size(), gemm_rows().size());
}

TEST(ChooseGemm, ChoosesTheSameKernelsForInt8AndFp8) {
  const auto kernel_for = [](int64_t num_rows, int64_t group_ins) {
    GemmProblem problem = kLayer;
    problem.format = WeightFormat::kInt8;
    problem.num_rows = num_rows;
    problem.group_outs = 1;
    problem.group_ins = group_ins;
    problem.has_workspace = true;
    return choose(problem, kH100).kernel;
  };
  for (const int64_t group_ins : {int64_t{128}, kLayer.in_features}) {
    EXPECT_EQ(kernel_for(1, group_ins), GemmKernel::kSkinnyQuantized);
    EXPECT_EQ(kernel_for(64, group_ins), GemmKernel::kSwapAbQuantized);
    EXPECT_EQ(kernel_for(512, group_ins), GemmKernel::kDequantizeThenGemm);
  }
  EXPECT_EQ(kernel_for(64, 64), GemmKernel::kQuantized);
  EXPECT_EQ(kernel_for(64, 32), GemmKernel::kNaive);
}

TEST(ChooseGemm, ChoosesQuantizedTilesIfFaster) {
  GemmTuning tuning = gemm_tuning(kH100);
  tuning.quantized_tile_max_rows = 100;
  tuning.scaled_quantized_max_rows = 0;
  GemmProblem problem = kLayer;
  problem.format = WeightFormat::kInt4;
  problem.group_ins = 128;
  problem.has_workspace = true;
  const auto choice = [&] { return choose(problem, kH100, tuning).kernel; };
  problem.num_rows = 100;
  EXPECT_EQ(choice(), GemmKernel::kSwapAbQuantized);
  problem.gated = true;
  EXPECT_EQ(choice(), GemmKernel::kSwapAbQuantized);
  problem.gated = false;
  problem.num_rows = 101;
  EXPECT_EQ(choice(), GemmKernel::kDequantizeThenGemm);
  tuning.scaled_quantized_min_rows = 100;
  tuning.scaled_quantized_max_rows = 101;
  EXPECT_EQ(choice(), GemmKernel::kScaledQuantized);
  problem.scale_dtype = DType::kF16;
  EXPECT_EQ(choice(), GemmKernel::kDequantizeThenGemm);
  problem.scale_dtype = DType::kBF16;
  problem.in_features -= 128;  // half a stage
  EXPECT_EQ(choice(), GemmKernel::kDequantizeThenGemm);
  problem.in_features += 128;
  problem.num_rows = 99;
  EXPECT_EQ(choice(), GemmKernel::kSwapAbQuantized);
  tuning.large_scaled_elements = problem.in_features * problem.out_features;
  tuning.large_scaled_quantized_min_rows = 99;
  EXPECT_EQ(choice(), GemmKernel::kScaledQuantized);
  problem.num_rows = 9;
  problem.group_ins = 64;
  EXPECT_EQ(choice(), GemmKernel::kQuantized);
  problem.group_ins = 128;
  problem.format = WeightFormat::kMxFp4;
  EXPECT_EQ(choice(), GemmKernel::kQuantized);
}

TEST(ChooseGemm, ChoosesScaledQuantizedForPerChannelFp8) {
  GemmProblem problem = kLayer;
  problem.num_rows = 128;
  problem.format = WeightFormat::kFp8;
  problem.group_ins = problem.in_features;
  problem.scale_dtype = DType::kF32;
  problem.has_workspace = true;
  const auto choice = [&](const auto& change) {
    GemmProblem changed = problem;
    change(changed);
    return choose(changed, kH100).kernel;
  };
  const auto with_rows = [&](int64_t num_rows) {
    return choice([&](GemmProblem& changed) { changed.num_rows = num_rows; });
  };
  EXPECT_EQ(with_rows(128), GemmKernel::kScaledQuantized);
  EXPECT_EQ(with_rows(64), GemmKernel::kSwapAbQuantized);
  EXPECT_EQ(with_rows(512), GemmKernel::kScaledQuantized);
  EXPECT_EQ(with_rows(513), GemmKernel::kDequantizeThenGemm);
  EXPECT_EQ(choice([](GemmProblem& changed) { changed.group_ins = changed.group_outs = 128; }),
            GemmKernel::kSwapAbQuantized);
  // Any number of inputs; int4 requires whole stages.
  EXPECT_EQ(choice([](GemmProblem& changed) { changed.in_features = changed.group_ins = 4112; }),
            GemmKernel::kScaledQuantized);
  EXPECT_EQ(choice([](GemmProblem& changed) { changed.norm = GemmNorm::kDeferred; }),
            GemmKernel::kSwapAbQuantized);
  EXPECT_EQ(choice([](GemmProblem& changed) { changed.batch_invariant = true; }), GemmKernel::kQuantized);
}

TEST(ChooseGemm, ChoosesFp8GemmIfXMayBeRoundedAndScalesArePerChannel) {
  GemmProblem many = kLayer;
  many.num_rows = 4096;
  many.format = WeightFormat::kFp8;
  many.group_ins = many.in_features;
  many.scale_dtype = DType::kF32;
  many.has_workspace = many.rounds_x = true;
  const auto choice = [&](const auto& change, const GpuFacts& gpu = kH100) {
    GemmProblem problem = many;
    change(problem);
    return choose(problem, gpu).kernel;
  };
  const auto expect_unsupported = [&](const auto& change) { EXPECT_NE(choice(change), GemmKernel::kFp8); };
  EXPECT_EQ(choice([](GemmProblem&) {}), GemmKernel::kFp8);
  EXPECT_EQ(choice([](GemmProblem& problem) { problem.gated = true; }), GemmKernel::kFp8);
  EXPECT_EQ(choice([](GemmProblem& problem) { problem.num_rows = gemm_tuning(kH100).fp8_min_rows; }),
            GemmKernel::kFp8);
  expect_unsupported([](GemmProblem& problem) { problem.num_rows = gemm_tuning(kH100).fp8_min_rows - 1; });
  expect_unsupported([](GemmProblem& problem) { problem.rounds_x = false; });
  expect_unsupported([](GemmProblem& problem) { problem.batch_invariant = true; });
  expect_unsupported([](GemmProblem& problem) { problem.group_ins = 128; });
  expect_unsupported([](GemmProblem& problem) { problem.format = WeightFormat::kInt4; });
  expect_unsupported([](GemmProblem& problem) { problem.has_workspace = false; });
  expect_unsupported([](GemmProblem& problem) { problem.in_features = problem.group_ins = 4104; });
  expect_unsupported([](GemmProblem& problem) { problem.out_features = 4104; });
  expect_unsupported([](GemmProblem& problem) { problem.in_features = problem.group_ins = 1 << 16; });
  expect_unsupported([](GemmProblem& problem) { problem.x_aligned = false; });
  EXPECT_NE(choice([](GemmProblem&) {}, kL40S), GemmKernel::kFp8);
  // The kernel applies RMSNorm while it quantizes x, but only with norm weights of x's dtype.
  many.norm = GemmNorm::kInline;
  EXPECT_TRUE(gemm_row(GemmKernel::kFp8).norms(many));
  many.norm_dtype = DType::kF32;
  EXPECT_FALSE(gemm_row(GemmKernel::kFp8).norms(many));
}

TEST(ChooseGemm, ChoosesFp8BlockGemmIfTilesHaveOneScalePerInputBlock) {
  GemmProblem many = kLayer;
  many.num_rows = 4096;
  many.format = WeightFormat::kFp8;
  many.group_outs = many.group_ins = 128;
  many.scale_dtype = DType::kF32;
  many.has_workspace = many.rounds_x = true;
  const auto choice = [&](const auto& change, const GpuFacts& gpu = kH100) {
    GemmProblem problem = many;
    change(problem);
    return choose(problem, gpu).kernel;
  };
  const auto expect_supported = [&](const auto& change) {
    EXPECT_EQ(choice(change), GemmKernel::kFp8Blocks);
  };
  const auto expect_unsupported = [&](const auto& change) {
    EXPECT_NE(choice(change), GemmKernel::kFp8Blocks);
  };
  expect_supported([](GemmProblem&) {});
  expect_supported([](GemmProblem& problem) { problem.gated = true; });
  expect_supported([](GemmProblem& problem) { problem.group_outs = 256; });
  expect_supported([](GemmProblem& problem) { problem.has_fp8_matmul = false; });
  expect_supported([](GemmProblem& problem) { problem.out_features = 4104; });
  expect_supported([](GemmProblem& problem) { problem.num_rows = gemm_tuning(kH100).fp8_block_min_rows; });
  expect_unsupported(
      [](GemmProblem& problem) { problem.num_rows = gemm_tuning(kH100).fp8_block_min_rows - 1; });
  expect_unsupported([](GemmProblem& problem) { problem.rounds_x = false; });
  expect_unsupported([](GemmProblem& problem) { problem.batch_invariant = true; });
  expect_unsupported([](GemmProblem& problem) { problem.group_ins = 64; });
  expect_unsupported([](GemmProblem& problem) { problem.group_outs = 64; });
  expect_unsupported([](GemmProblem& problem) { problem.out_dtype = DType::kF32; });
  expect_unsupported([](GemmProblem& problem) { problem.has_workspace = false; });
  expect_unsupported([](GemmProblem& problem) { problem.x_aligned = false; });
  EXPECT_NE(choice([](GemmProblem&) {}, kL40S), GemmKernel::kFp8Blocks);
}

TEST(ChooseGemm, ChoosesSkinnyQuantizedForFewRows) {
  GemmProblem few = kLayer;
  few.format = WeightFormat::kInt4;
  few.group_ins = 128;
  few.has_workspace = true;
  const auto choice = [&](const auto& change, const GpuFacts& gpu = kH100) {
    GemmProblem problem = few;
    change(problem);
    return choose(problem, gpu).kernel;
  };
  const auto expect_unsupported = [&](const auto& change) {
    EXPECT_NE(choice(change), GemmKernel::kSkinnyQuantized);
  };
  EXPECT_EQ(choice([](GemmProblem&) {}), GemmKernel::kSkinnyQuantized);
  EXPECT_EQ(choice([](GemmProblem& problem) { problem.gated = true; }), GemmKernel::kSkinnyQuantized);
  EXPECT_EQ(choice([](GemmProblem& problem) { problem.has_zeros = true; }), GemmKernel::kSkinnyQuantized);
  for (const int64_t group_ins : {128, 256, 4096, 1 << 20})
    EXPECT_EQ(choice([&](GemmProblem& problem) {
                problem.format = WeightFormat::kFp8;
                problem.group_ins = group_ins;
                problem.scale_dtype = DType::kF32;
              }),
              GemmKernel::kSkinnyQuantized);
  EXPECT_EQ(choice([](GemmProblem&) {}, kL40S), GemmKernel::kQuantized);
  expect_unsupported([](GemmProblem& problem) { problem.num_rows = 9; });
  expect_unsupported([](GemmProblem& problem) { problem.batch_invariant = true; });
  expect_unsupported([](GemmProblem& problem) { problem.scale_dtype = DType::kF32; });
  expect_unsupported([](GemmProblem& problem) { problem.scales_aligned = false; });
  expect_unsupported([](GemmProblem& problem) { problem.group_ins = 256; });
  expect_unsupported([](GemmProblem& problem) { problem.in_features = 4096 + 128; });
  expect_unsupported([](GemmProblem& problem) { problem.reorders = true; });
  expect_unsupported([](GemmProblem& problem) { problem.out_features = 4092; });
  expect_unsupported([](GemmProblem& problem) {
    problem.format = WeightFormat::kFp8;
    problem.scale_dtype = DType::kF32;
    problem.group_outs = 96;
  });
  expect_unsupported([](GemmProblem& problem) {
    problem.format = WeightFormat::kFp8;
    problem.scale_dtype = DType::kF32;
    problem.group_ins = 384;
  });
  // Zeros of a row that do not fill words; x that does not fit into shared memory next to the stages.
  expect_unsupported([](GemmProblem& problem) {
    problem.in_features = 11008;
    problem.num_rows = 1;
    problem.has_zeros = true;
  });
  expect_unsupported([](GemmProblem& problem) { problem.in_features = 14336; });
  EXPECT_EQ(choice([](GemmProblem& problem) {
              problem.in_features = 14336;
              problem.num_rows = 1;
            }),
            GemmKernel::kSkinnyQuantized);
}

TEST(ChooseGemm, ChoosesQuantizedGemmForFewRowTiles) {
  GemmProblem problem = kLayer;
  problem.format = WeightFormat::kInt4;
  problem.group_ins = 128;
  problem.has_workspace = true;
  const auto choice = [&](int64_t num_rows) {
    problem.num_rows = num_rows;
    return choose(problem, kL40S).kernel;
  };
  EXPECT_EQ(choice(1), GemmKernel::kQuantized);
  EXPECT_EQ(choice(64), GemmKernel::kQuantized);
  EXPECT_EQ(choice(65), GemmKernel::kDequantizeThenGemm);
  problem.batch_invariant = true;
  EXPECT_EQ(choice(4096), GemmKernel::kQuantized);
  problem.batch_invariant = false;
  problem.has_workspace = false;
  EXPECT_EQ(choice(4096), GemmKernel::kQuantized);
  problem.reorders = true;
  EXPECT_EQ(choice(1), GemmKernel::kNaive);
  // fp8 blocks that do not contain whole K-blocks of 64 inputs.
  problem = kLayer;
  problem.format = WeightFormat::kFp8;
  problem.group_ins = 96;
  problem.has_workspace = true;
  EXPECT_EQ(choice(8), GemmKernel::kNaive);
  EXPECT_EQ(choice(65), GemmKernel::kDequantizeThenGemm);
  problem.dtype = DType::kF32;
  EXPECT_EQ(choice(65), GemmKernel::kNaive);
}

TEST(ChooseGemm, FallsBackToCublasLtThenNaive) {
  const auto expect_no_tensor_cores = [](GemmProblem problem) {
    for (const GpuFacts& gpu : kGpus)
      for (const int64_t num_rows : {1, 24, 64, 500}) {
        problem.num_rows = num_rows;
        problem.batch_invariant = false;
        EXPECT_EQ(choose(problem, gpu).kernel, GemmKernel::kCublasLt);
        problem.batch_invariant = true;
        EXPECT_EQ(choose(problem, gpu).kernel, GemmKernel::kNaive);
      }
  };
  GemmProblem problem = kLayer;
  problem.dtype = problem.out_dtype = DType::kF32;
  expect_no_tensor_cores(problem);
  problem = kLayer;
  problem.in_features = 4100;
  expect_no_tensor_cores(problem);
  problem = kLayer;
  problem.x_aligned = problem.normalized_aligned = false;
  expect_no_tensor_cores(problem);
  problem = kLayer;
  problem.weight_aligned = false;
  expect_no_tensor_cores(problem);
}

// Each row must be accumulated in one order, which these kernels share, whatever other rows the batch has.
TEST(ChooseGemm, BatchInvariantKernelsAgreeForAnyRows) {
  const std::set<GemmKernel> same{GemmKernel::kSkinny, GemmKernel::kInvariantSm90,
                                  GemmKernel::kInvariantSm80};
  for (const GpuFacts& gpu : kGpus)
    for (const int64_t out_features : {8, 4096, 128256}) {
      GemmProblem problem = kLayer;
      problem.out_features = out_features;
      problem.batch_invariant = true;
      for (problem.num_rows = 1; problem.num_rows < 300; ++problem.num_rows)
        EXPECT_TRUE(same.contains(choose(problem, gpu).kernel)) << problem.num_rows << " rows";
    }
}

// A fused SiLU reads unrounded sums, a separate one rounded sums. The choice must not depend on the rows.
TEST(ChooseGemm, FusesSiluForAllBatchInvariantRowsOrNone) {
  GemmProblem problem = kLayer;
  problem.batch_invariant = problem.gated = true;
  for (const GpuFacts& gpu : kGpus)
    for (const int64_t out_features : {4, 8, 4096})
      for (const int64_t in_features : {8, 45, 4096}) {
        problem.out_features = out_features;
        problem.in_features = in_features;
        const bool separate = !gpu.runs_sm90a() || out_features % 8 != 0 || in_features % 8 != 0;
        for (problem.num_rows = 1; problem.num_rows < 300; ++problem.num_rows)
          EXPECT_EQ(choose(problem, gpu).kernel == GemmKernel::kGemmThenSilu, separate)
              << problem.num_rows << " rows of " << in_features << " to " << out_features;
      }
}

TEST(ChooseGemm, ChoosesFullKTilesForLargeBatchInvariantLayers) {
  GemmProblem problem = kLayer;
  problem.batch_invariant = true;
  for (const bool gated : {false, true}) {
    problem.gated = gated;
    problem.num_rows = 32;
    EXPECT_EQ(choose(problem, kH100).kernel, GemmKernel::kSkinny);
    problem.num_rows = 33;
    EXPECT_EQ(choose(problem, kH100).kernel, GemmKernel::kInvariantSm90);
  }
}

// Without batch invariance, the speed of cuBLASLt limits the width of the skinny GEMM.
TEST(ChooseGemm, ChoosesSkinnyForBatchInvariantLayersOfAnyWidth) {
  GemmProblem problem = kLayer;
  problem.batch_invariant = true;
  problem.num_rows = 32;
  problem.out_features = 8 * gemm_tuning(kH100).skinny_more_rows_max_features;
  EXPECT_EQ(choose(problem, kH100).kernel, GemmKernel::kSkinny);
}

TEST(ChooseGemm, NormalizesBatchInvariantLayersInASeparateLaunch) {
  for_each_problem([](const GemmProblem& problem, const GpuFacts& gpu) {
    if (!problem.batch_invariant) return;
    const GemmRow& row = choose(problem, gpu);
    EXPECT_NE(row.kernel, GemmKernel::kCublasLt);
    EXPECT_FALSE(row.norms(problem)) << row.name;
  });
}

TEST(ChooseGemm, RunsSm90aCodeOnComputeCapability90Only) {
  const std::set<GemmKernel> sm90{GemmKernel::kGatedMlp, GemmKernel::kSwapAbSplitK,
                                  GemmKernel::kInvariantSm90};
  for_each_problem([&](const GemmProblem& problem, const GpuFacts& gpu) {
    if (!gpu.runs_sm90a()) {
      EXPECT_FALSE(sm90.contains(choose(problem, gpu).kernel));
    }
  });
}

TEST(ChooseGemm, ChoosesSkinnyWhileXFitsSharedMemory) {
  GemmProblem problem = kLayer;
  problem.num_rows = 32;
  EXPECT_TRUE(supports(GemmKernel::kSkinny, problem, kH100));
  EXPECT_FALSE(supports(GemmKernel::kSkinny, problem, kL40S));
  problem.num_rows = 16;
  EXPECT_TRUE(supports(GemmKernel::kSkinny, problem, kL40S));
  problem.out_features = 4100;
  EXPECT_FALSE(supports(GemmKernel::kSkinny, problem, kH100));
}

// The memory that the kernel reads must be aligned: x, or the output of a separate norm.
TEST(ChooseGemm, RequiresAlignmentOfTheInputThatTheKernelReads) {
  GemmProblem problem = kLayer;
  problem.norm = GemmNorm::kInline;
  problem.normalized_aligned = false;
  EXPECT_TRUE(supports(GemmKernel::kSkinny, problem, kH100));  // normalizes x itself
  EXPECT_FALSE(supports(GemmKernel::kSwapAbSplitK, problem, kH100));
  problem.dtype = problem.out_dtype = DType::kF16;  // does not normalize f16 itself
  EXPECT_FALSE(supports(GemmKernel::kSkinny, problem, kH100));
}

TEST(ChooseGemm, FusesNormIntoSkinnyAndSplitK) {
  GemmProblem problem = kLayer;
  problem.norm = GemmNorm::kInline;
  EXPECT_TRUE(gemm_row(GemmKernel::kSkinny).norms(problem));
  EXPECT_FALSE(gemm_row(GemmKernel::kSwapAbSplitK).norms(problem));
  problem.norm = GemmNorm::kDeferred;
  EXPECT_TRUE(gemm_row(GemmKernel::kSkinny).norms(problem));
  EXPECT_TRUE(gemm_row(GemmKernel::kSwapAbSplitK).norms(problem));
  problem.norm_aligned = false;
  EXPECT_FALSE(gemm_row(GemmKernel::kSkinny).norms(problem));
  problem.norm_aligned = true;
  problem.norm_dtype = DType::kF32;
  EXPECT_TRUE(gemm_row(GemmKernel::kSkinny).norms(problem));
  EXPECT_FALSE(gemm_row(GemmKernel::kSkinnyQuantized).norms(problem));
  problem.norm_dtype = DType::kF16;
  EXPECT_FALSE(gemm_row(GemmKernel::kSkinny).norms(problem));
  problem.dtype = problem.norm_dtype = DType::kF16;
  EXPECT_FALSE(gemm_row(GemmKernel::kSkinny).norms(problem));
}

TEST(ChooseGemm, ChoosesSplitKTilesForWholePairsOfEightRows) {
  const auto taken = [](int64_t out_features, int64_t in_features, DType dtype) {
    return supports(GemmKernel::kSwapAbSplitK,
                    {.num_rows = 32,
                     .in_features = in_features,
                     .out_features = out_features,
                     .dtype = dtype,
                     .out_dtype = dtype},
                    kH100);
  };
  EXPECT_TRUE(taken(48, 72, DType::kBF16));
  EXPECT_FALSE(taken(40, 72, DType::kBF16));
  EXPECT_FALSE(taken(48, 76, DType::kBF16));
  EXPECT_FALSE(taken(48, 72, DType::kF32));
}

TEST(ChooseGemm, ChoosesGatedMlpUpTo256Rows) {
  const auto taken = [](int64_t num_rows, int64_t weight_rows, int64_t in_features, DType dtype,
                        DType out_dtype) {
    return supports(GemmKernel::kGatedMlp,
                    {.num_rows = num_rows,
                     .in_features = in_features,
                     .out_features = weight_rows / 2,
                     .dtype = dtype,
                     .out_dtype = out_dtype,
                     .gated = true},
                    kH100);
  };
  EXPECT_TRUE(taken(256, 48, 72, DType::kBF16, DType::kBF16));
  EXPECT_TRUE(taken(100, 48, 72, DType::kF16, DType::kF16));
  EXPECT_FALSE(taken(257, 48, 72, DType::kBF16, DType::kBF16));
  EXPECT_FALSE(taken(100, 40, 72, DType::kBF16, DType::kBF16));
  EXPECT_FALSE(taken(100, 48, 76, DType::kBF16, DType::kBF16));
  EXPECT_FALSE(taken(100, 48, 72, DType::kBF16, DType::kF32));
  EXPECT_FALSE(taken(100, 48, 72, DType::kF32, DType::kF32));
}

TEST(ChooseGemm, ChoosesGemvForASingleRow) {
  constexpr GemmProblem kSingleToken{.num_rows = 1, .in_features = 4096, .out_features = 2048};
  const auto choice = [&](const auto& change, const GpuFacts& gpu = kH100) {
    GemmProblem problem = kSingleToken;
    change(problem);
    return choose(problem, gpu).kernel;
  };
  const auto expect_unsupported = [&](const auto& change) { EXPECT_NE(choice(change), GemmKernel::kGemv); };
  EXPECT_EQ(choice([](GemmProblem&) {}), GemmKernel::kGemv);
  EXPECT_EQ(choice([](GemmProblem& problem) { problem.out_features = 2112; }), GemmKernel::kGemv);
  EXPECT_EQ(choice([](GemmProblem& problem) { problem.dtype = problem.out_dtype = DType::kF16; }),
            GemmKernel::kGemv);
  EXPECT_EQ(choice([](GemmProblem&) {}, kL40S), GemmKernel::kSkinny);
  expect_unsupported([](GemmProblem& problem) { problem.num_rows = 2; });
  expect_unsupported([](GemmProblem& problem) { problem.batch_invariant = true; });
  expect_unsupported([](GemmProblem& problem) { problem.gated = true; });
  expect_unsupported([](GemmProblem& problem) { problem.norm = GemmNorm::kInline; });
  expect_unsupported([](GemmProblem& problem) { problem.out_dtype = DType::kF32; });
  expect_unsupported([](GemmProblem& problem) { problem.out_features = 2120; });
  expect_unsupported([](GemmProblem& problem) { problem.out_features = 2044; });
  expect_unsupported([](GemmProblem& problem) { problem.in_features = 4096 + 64; });
  expect_unsupported([](GemmProblem& problem) { problem.in_features = 4096 - 64; });  // too few inputs
  expect_unsupported([](GemmProblem& problem) { problem.x_aligned = false; });
  expect_unsupported([](GemmProblem& problem) { problem.weight_aligned = false; });
}

TEST(ChooseGemm, AppliesPerGpuTuning) {
  GemmProblem problem = kLayer;
  problem.num_rows = 24;
  GemmTuning tuning = gemm_tuning(kH100);
  tuning.large_min_rows = problem.num_rows;
  tuning.small_elements = 0;
  EXPECT_EQ(choose(problem, kH100, tuning).kernel, GemmKernel::kSwapAbSplitK);
  tuning.large_min_rows = problem.num_rows + 1;
  EXPECT_EQ(choose(problem, kH100, tuning).kernel, GemmKernel::kSkinny);
  tuning.skinny_any_width_max_rows = problem.num_rows - 1;
  tuning.skinny_more_rows_max_features = problem.out_features - 1;
  EXPECT_EQ(choose(problem, kH100, tuning).kernel, GemmKernel::kCublasLt);

  problem = {.num_rows = 128, .in_features = 4096, .out_features = 14336, .gated = true};
  tuning = gemm_tuning(kH100);
  tuning.any_max_rows = 64;
  tuning.min_wave_efficiency = 0.0;
  EXPECT_EQ(choose(problem, kH100, tuning).kernel, GemmKernel::kGatedMlp);
  tuning.min_wave_efficiency = 1.1;
  EXPECT_NE(choose(problem, kH100, tuning).kernel, GemmKernel::kGatedMlp);
}

TEST(GatedMlpGemm, WaveEfficiencyIsOneIfEveryCtaHasEqualWork) {
  for (const GpuFacts& gpu : kGpus)
    for (const int64_t num_rows : {65, 128, 192, 256})
      for (int64_t weight_rows = 16; weight_rows < 60000; weight_rows += 16 * 37) {
        const double efficiency = sm90::gated_mlp_wave_efficiency(weight_rows, num_rows, gpu.num_sms);
        EXPECT_GT(efficiency, 0.0);
        EXPECT_LE(efficiency, 1.0);
        // The efficiency refers to the shape that is launched.
        const sm90::GatedMlpGemmShape shape = sm90::gated_mlp_shape_for(weight_rows, num_rows, gpu.num_sms);
        EXPECT_LE(shape.num_clusters, gpu.num_sms / sm90::kGatedMlpClusterSize);
      }
  // One tile of the tallest height per SM is fully efficient. One more pair makes all SMs wait for it.
  const int64_t full_wave = int64_t{16} * 14 * kH100.num_sms;
  EXPECT_EQ(sm90::gated_mlp_wave_efficiency(full_wave, 128, kH100.num_sms), 1.0);
  EXPECT_LT(sm90::gated_mlp_wave_efficiency(full_wave + 16, 128, kH100.num_sms), 1.0);
}

}  // namespace
}  // namespace attend::kernels::cuda
