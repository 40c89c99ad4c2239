// Which kernel attends (kernels/attention/cuda/choose.h).
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string_view>

#include "attend/kernels/attention/cuda/choose.h"
#include "tests/kernels/choose/gpus.h"

namespace attend::kernels::cuda {
namespace {

using testing_choose::kA100;
using testing_choose::kGpus;
using testing_choose::kH100;
using testing_choose::kL40S;

// A prompt of 4096 tokens, four query heads for each of eight KV heads.
constexpr AttentionProblem kPrefill{.head_dim_qk = 128,
                                    .head_dim_v = 128,
                                    .num_rows = 4 * 4096,
                                    .tile_rows = 128,
                                    .num_row_tiles = 128,
                                    .num_reqs = 1,
                                    .num_kv_heads = 8,
                                    .num_workers = 132};
// A decode step of 16 requests.
constexpr AttentionProblem kDecode{.head_dim_qk = 128,
                                   .head_dim_v = 128,
                                   .num_rows = 4,
                                   .tile_rows = 16,
                                   .num_row_tiles = 16,
                                   .num_reqs = 16,
                                   .num_kv_heads = 8,
                                   .num_workers = 132};
// The same of one request with so few keys that clusters have them all.
constexpr AttentionProblem kLoneDecode{.head_dim_qk = 128,
                                       .head_dim_v = 128,
                                       .num_rows = 4,
                                       .tile_rows = 8,
                                       .num_row_tiles = 1,
                                       .num_reqs = 1,
                                       .num_kv_heads = 8,
                                       .num_workers = 132,
                                       .inline_plan = true,
                                       .lone_decode = true};
constexpr AttentionProblem kMla{.mla = true,
                                .head_dim_qk = 576,
                                .head_dim_v = 512,
                                .num_rows = 16,
                                .tile_rows = 16,
                                .num_row_tiles = 16,
                                .num_reqs = 16,
                                .num_workers = 132};

void for_each_problem(const std::function<void(const AttentionProblem&, const GpuFacts&)>& fn) {
  for (const GpuFacts& gpu : kGpus)
    for (const AttentionProblem& step : {kPrefill, kDecode, kLoneDecode, kMla})
      for (const DType q : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3})
        for (const DType kv :
             {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kU8})
          for (const HeadDims dims :
               {HeadDims{40, 40}, {64, 64}, {96, 80}, {128, 128}, {192, 128}, {256, 128}, {256, 256}})
            for (unsigned flags = 0; flags < 32; ++flags) {
              AttentionProblem problem = step;
              problem.q_dtype = q;
              problem.out_dtype = is_fp8(q) ? DType::kBF16 : q;
              problem.kv_dtype = kv;
              if (!problem.mla) problem.head_dim_qk = dims.qk, problem.head_dim_v = dims.v;
              if (problem.tile_rows == 128 && problem.head_dim_v > 128) problem.tile_rows = 64;
              problem.positive_scale = (flags & 1) == 0;
              problem.aligned = (flags & 2) == 0;
              problem.strides_fit = (flags & 4) == 0;
              problem.has_tree_mask = (flags & 8) != 0;
              problem.fixed_splits = (flags & 16) != 0;
              if (problem.fixed_splits && problem.tile_rows <= 16) problem.tile_rows = 64;
              fn(problem, gpu);
            }
}

// The GPU's, with every row that is off until it has run on one.
AttentionTuning all_rows_on(const GpuFacts& gpu) {
  AttentionTuning tuning = attention_tuning(gpu);
  tuning.prefills_e4m3 = tuning.prefills_96 = true;
  return tuning;
}

TEST(ChooseAttention, GivesEveryProblemARowThatTakesItAndEveryRowAProblem) {
  std::set<std::string_view> reached;
  for_each_problem([&](const AttentionProblem& problem, const GpuFacts& gpu) {
    const AttentionRow& row = choose(problem, gpu, all_rows_on(gpu));
    EXPECT_TRUE(row.takes(problem, gpu)) << row.name;
    reached.insert(row.name);
  });
  EXPECT_EQ(reached.size(), attention_rows().size());
}

TEST(ChooseAttention, TakesTheSmallestInstanceThatHoldsTheHeadDims) {
  for_each_problem([](const AttentionProblem& problem, const GpuFacts& gpu) {
    const AttentionRow& chosen = choose(problem, gpu, all_rows_on(gpu));
    if (chosen.dims == HeadDims{}) return;
    EXPECT_GE(chosen.dims.qk, problem.head_dim_qk);
    EXPECT_GE(chosen.dims.v, problem.head_dim_v);
    for (const AttentionRow& row : attention_rows())
      if (row.kernel == chosen.kernel && row.dims.qk < chosen.dims.qk) {
        EXPECT_FALSE(row.takes(problem, gpu));
      }
  });
}

TEST(ChooseAttention, LeavesToTheRowKernelWhatTensorCoresDoNotTake) {
  for (const GpuFacts& gpu : kGpus)
    for (const AttentionProblem& step : {kPrefill, kDecode, kLoneDecode, kMla}) {
      const auto expect_rows = [&](const std::function<void(AttentionProblem&)>& change) {
        AttentionProblem problem = step;
        change(problem);
        EXPECT_EQ(choose(problem, gpu).kernel, AttentionKernel::kRows);
      };
      expect_rows([](auto& p) { p.q_dtype = p.kv_dtype = p.out_dtype = DType::kF32; });
      expect_rows([](auto& p) { p.kv_dtype = DType::kF16; });
      expect_rows([](auto& p) { p.out_dtype = DType::kF16; });
      expect_rows([](auto& p) { p.positive_scale = false; });
      expect_rows([](auto& p) { p.aligned = false; });
      expect_rows([](auto& p) { p.strides_fit = false; });
    }
}

TEST(ChooseAttention, ConvertsFp8KeysInRowsOf16BytesAndForMlaOnComputeCapability90Alone) {
  AttentionProblem problem = kDecode;
  problem.kv_dtype = DType::kF8E4M3;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
  problem.head_dim_qk = 120;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kRows);
  problem = kMla;
  problem.kv_dtype = DType::kF8E4M3;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Mla);
  EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kRows);
  problem.head_dim_qk = 520;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kRows);
}

TEST(ChooseAttention, ConvertsScaledRowsWhereSharedMemoryHoldsThem) {
  AttentionProblem problem = kMla;
  problem.kv_dtype = DType::kU8;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80ScaledMla);
  EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kRows);
  problem.q_dtype = problem.out_dtype = DType::kF32;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kRows);
  problem = kMla;
  problem.kv_dtype = DType::kU8;
  problem.fixed_splits = true;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kRows);
}

TEST(ChooseAttention, DecodesALoneRequestInShortCodeWhereNothingElseIsAskedFor) {
  const auto expect_kernel = [](AttentionKernel kernel, const std::function<void(AttentionProblem&)>& change,
                                const GpuFacts& gpu) {
    AttentionProblem problem = kLoneDecode;
    change(problem);
    EXPECT_EQ(choose(problem, gpu).kernel, kernel);
  };
  const auto expect_lone = [&](const std::function<void(AttentionProblem&)>& change) {
    expect_kernel(AttentionKernel::kSm80LoneDecode, change, kH100);
  };
  expect_lone([](auto&) {});
  expect_lone([](auto& p) { p.q_dtype = p.kv_dtype = p.out_dtype = DType::kF16; });
  expect_lone([](auto& p) { p.head_dim_qk = p.head_dim_v = 64; });
  const auto expect_tiles = [&](const std::function<void(AttentionProblem&)>& change,
                                const GpuFacts& gpu = kH100) {
    expect_kernel(AttentionKernel::kSm80Tiles, change, gpu);
  };
  expect_tiles([](auto&) {}, kA100);
  expect_tiles([](auto& p) { p.lone_decode = false; });
  expect_tiles([](auto& p) { p.has_tree_mask = true; });
  expect_tiles([](auto& p) { p.out_dtype = DType::kF32; });
  expect_tiles([](auto& p) { p.kv_dtype = DType::kF8E4M3; });
  expect_tiles([](auto& p) { p.tile_rows = 16; });
  expect_tiles([](auto& p) { p.head_dim_qk = p.head_dim_v = 96; });
  expect_tiles([](auto& p) { p.head_dim_qk = 192; });
}

TEST(ChooseAttention, RunsPrefillOnComputeCapability90Alone) {
  for (const GpuFacts& gpu : kGpus)
    EXPECT_EQ(choose(kPrefill, gpu).kernel,
              gpu.runs_sm90a() ? AttentionKernel::kSm90Prefill : AttentionKernel::kSm80Tiles);
}

TEST(ChooseAttention, PrefillsNearlyAsManyWorkTilesOfOneRequestAsThereAreSms) {
  AttentionProblem problem = kPrefill;
  problem.num_row_tiles = 15;  // of 8 heads on 132 SMs
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
  problem.num_row_tiles = 14;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
  // Those of several requests may be of any lengths.
  problem.num_row_tiles = 15;
  problem.num_reqs = 2;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
  problem.shares_keys = true;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
}

// Plans for such a GPU are made for its kernel, so none of sm80's is left.
TEST(ChooseAttention, RunsMlaOnComputeCapability90WithItsOwnKernelAlone) {
  for_each_problem([](const AttentionProblem& problem, const GpuFacts& gpu) {
    EXPECT_NE(choose(problem, gpu).kernel,
              gpu.runs_sm90a() ? AttentionKernel::kSm80Mla : AttentionKernel::kSm90Mla);
  });
  EXPECT_EQ(choose(kMla, kH100).kernel, AttentionKernel::kSm90Mla);
}

TEST(ChooseAttention, PrefillsFp8KeysOfHeadsUpTo128Alone) {
  AttentionProblem problem = kPrefill;
  problem.kv_dtype = DType::kF8E4M3;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
  problem.head_dim_qk = 192;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
}

TEST(ChooseAttention, MultipliesE4m3QueriesAsTheyAreWhereKeysAreE4m3Too) {
  AttentionProblem problem = kPrefill;
  problem.q_dtype = problem.kv_dtype = DType::kF8E4M3;
  const AttentionTuning tuning = all_rows_on(kH100);
  for (const DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
    problem.out_dtype = out;
    EXPECT_EQ(choose(problem, kH100, tuning).name, "sm90 prefill e4m3 128/128");
    EXPECT_EQ(choose(problem, kA100, tuning).kernel, AttentionKernel::kRows);
  }
  const auto expect_rows = [&](const std::function<void(AttentionProblem&)>& change) {
    AttentionProblem other = problem;
    change(other);
    EXPECT_EQ(choose(other, kH100, tuning).kernel, AttentionKernel::kRows);
  };
  expect_rows([](auto& p) { p.kv_dtype = DType::kBF16; });
  expect_rows([](auto& p) { p.kv_dtype = DType::kF8E5M2; });
  expect_rows([](auto& p) { p.head_dim_v = 72; });
  expect_rows([](auto& p) { p.head_dim_qk = p.head_dim_v = 256; });
  expect_rows([](auto& p) { p.fixed_splits = true; });
  expect_rows([](auto& p) { p.has_tree_mask = true; });
  expect_rows([](auto& p) { p.tile_rows = 16; });
  expect_rows([](auto& p) { p.tile_rows = 64, p.inline_plan = true; });
  expect_rows([](auto& p) { p.tile_rows = 64, p.shares_keys = true; });
}

// Under fixed splits prefill has the bits of sm80's kernel, which takes the steps of few rows.
TEST(ChooseAttention, PrefillsFixedSplitsOfHeadDims128Alone) {
  const auto choice = [](const auto& change) {
    AttentionProblem problem = kPrefill;
    problem.fixed_splits = true;
    problem.head_dim_qk = problem.head_dim_v = 128;
    change(problem);
    return choose(problem, kH100).kernel;
  };
  EXPECT_EQ(choice([](auto&) {}), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choice([](auto& p) { p.head_dim_qk = p.head_dim_v = 96; }), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choice([](auto& p) { p.head_dim_qk = p.head_dim_v = 64; }), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choice([](auto& p) { p.head_dim_qk = 192; }), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choice([](auto& p) { p.kv_dtype = DType::kF8E4M3; }), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choice([](auto& p) { p.tile_rows = 64; }), AttentionKernel::kSm80Tiles);
}

// The plan knows the head dim of V alone.
TEST(ChooseAttention, TakesKeysOf256ColumnsInTilesThatTheInstanceOf256Has) {
  AttentionProblem problem = kDecode;
  problem.head_dim_qk = 256;
  for (const int tile_rows : {8, 16, 64}) {
    problem.tile_rows = tile_rows;
    EXPECT_EQ(choose(problem, kA100).name, "sm80 tiles 256/256") << tile_rows;
  }
  for (const int tile_rows : {32, 128}) {
    problem.tile_rows = tile_rows;
    EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kRows) << tile_rows;
  }
  // Bits of a request must not depend on another's length, which decides how tall tiles are.
  problem.fixed_splits = true;
  for (const int tile_rows : {64, 128}) {
    problem.tile_rows = tile_rows;
    EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kRows) << tile_rows;
  }
}

// Masks of trees are those of few new tokens.
TEST(ChooseAttention, LeavesTreeMasksToSm80) {
  AttentionProblem problem = kPrefill;
  problem.has_tree_mask = true;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
  problem = kMla;
  problem.fixed_splits = true;
  problem.tile_rows = 64;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kRows);
}

TEST(ChooseAttention, LeavesFewWorkTilesToSm80WhichDividesKeysAmongCtas) {
  AttentionProblem problem = kPrefill;
  problem.num_rows = problem.num_row_tiles * problem.tile_rows / 16;
  problem.num_row_tiles /= 16;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
  problem.num_workers = 1;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
}

// Bits of a request are those of one kernel, then.
TEST(ChooseAttention, WithoutSplitsRunsOneKernelHoweverManyRequestsThereAre) {
  AttentionProblem problem = kPrefill;
  problem.never_splits = true;
  problem.num_rows = 100;
  for (const int64_t num_reqs : {1, 2, 30, 1000}) {
    problem.num_reqs = num_reqs;
    problem.num_row_tiles = num_reqs;
    EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
    EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kSm80Tiles);
  }
}

TEST(ChooseAttention, PrefillsFewWorkTilesWhereThePlanDividesTheirKeys) {
  AttentionProblem problem = kPrefill;
  problem.num_rows = problem.num_row_tiles * problem.tile_rows / 16;
  problem.num_row_tiles /= 16;
  problem.shares_keys = true;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kSm80Tiles);
  problem.num_rows = 64;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
}

// Its warps read keys and values once, where those of sm80 read them once for each 16 rows.
TEST(ChooseAttention, PrefillsWhatIsVerifiedWhereRowsAreManyAndKeysDivided) {
  AttentionProblem problem = kDecode;
  problem.num_rows = 64;
  problem.tile_rows = 64;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm80Tiles);
  problem.shares_keys = true;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kSm80Tiles);
  const auto expect_tiles = [&](const std::function<void(AttentionProblem&)>& change) {
    AttentionProblem other = problem;
    change(other);
    EXPECT_EQ(choose(other, kH100).kernel, AttentionKernel::kSm80Tiles);
  };
  expect_tiles([](auto& p) { p.kv_dtype = DType::kF8E4M3; });
  expect_tiles([](auto& p) { p.has_tree_mask = true; });
  expect_tiles([](auto& p) { p.num_rows = 16; });
  expect_tiles([](auto& p) { p.head_dim_qk = 256; });
  problem.num_rows = 32;
  problem.tile_rows = 32;
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
  expect_tiles([](auto& p) { p.num_reqs = 32; });
  expect_tiles([](auto& p) { p.num_reqs = 2; });
}

// The plan, which knows the head dim of V alone, makes tiles taller than those of the widest sm80 instance.
TEST(ChooseAttention, PrefillsWhereTilesHaveNoInstance) {
  AttentionProblem problem = kPrefill;
  problem.head_dim_qk = 256;
  EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kRows);
  EXPECT_EQ(choose(problem, kH100).kernel, AttentionKernel::kSm90Prefill);
}

TEST(ChooseAttention, LeavesToTheRowKernelWhatSharedMemoryDoesNotHold) {
  AttentionProblem problem = kPrefill;
  problem.head_dim_qk = problem.head_dim_v = 256;
  problem.tile_rows = 64;
  EXPECT_EQ(choose(problem, kA100).kernel, AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choose(kMla, kA100).kernel, AttentionKernel::kSm80Mla);
  EXPECT_EQ(choose(kMla, kL40S).kernel, AttentionKernel::kRows);
}

}  // namespace
}  // namespace attend::kernels::cuda
