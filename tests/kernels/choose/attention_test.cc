// Selection of attention kernels (kernels/attention/cuda/choose.h).
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

constexpr AttentionProblem make_attention(int num_reqs, int seqlen_q, int num_q_heads, int num_kv_heads,
                                          int head_dim) {
  return {.step = {.limits = {.max_reqs = 1024,
                              .max_tokens = 1 << 20,
                              .max_kv_tokens = 1 << 22,
                              .num_q_heads = num_q_heads,
                              .num_kv_heads = num_kv_heads,
                              .head_dim_v = head_dim,
                              .split_tokens = 512,
                              .num_workers = 132},
                   .num_reqs = num_reqs,
                   .max_seqlen_q = seqlen_q,
                   .num_tokens = num_reqs * seqlen_q},
          .head_dim_qk = head_dim};
}

// A prompt of 4096 tokens, 32 query heads and 8 KV heads.
constexpr AttentionProblem kPrefill = make_attention(1, 4096, 32, 8, 128);
// A decode step of 16 requests.
constexpr AttentionProblem kDecode = make_attention(16, 1, 32, 8, 128);
// A decode step of one request short enough that clusters process all its keys.
constexpr AttentionProblem kSingleRequestDecode = [] {
  AttentionProblem problem = make_attention(1, 1, 32, 8, 128);
  problem.step.max_seqlen_kv = kShortRequestMaxKeys;
  problem.step.plans_inline = problem.plain_token = true;
  return problem;
}();
constexpr AttentionProblem kMla = [] {
  AttentionProblem problem = make_attention(16, 1, 16, 1, 512);
  problem.mla = true;
  problem.head_dim_qk = 576;
  return problem;
}();

// Sets `num_tokens` new tokens per request, of four rows each.
void set_seqlen_q(AttentionProblem& problem, int num_tokens) {
  problem.step.max_seqlen_q = num_tokens;
  problem.step.num_tokens = num_tokens * problem.step.num_reqs;
}
void set_num_reqs(AttentionProblem& problem, int num_reqs) {
  problem.step.num_reqs = num_reqs;
  problem.step.num_tokens = num_reqs * problem.step.max_seqlen_q;
}
void set_head_dims(AttentionProblem& problem, int head_dim) {
  problem.head_dim_qk = problem.step.limits.head_dim_v = head_dim;
}
void set_kv_dtype(AttentionProblem& problem, DType dtype) {
  problem.kv_dtype = problem.step.limits.kv_dtype = dtype;
}
void fix_splits(AttentionProblem& problem) { problem.step.limits.split_rule = SplitRule::kFixed; }

void for_each_problem(const std::function<void(const AttentionProblem&, const GpuFacts&)>& fn) {
  for (const GpuFacts& gpu : kGpus)
    for (const AttentionProblem& step : {kPrefill, kDecode, kSingleRequestDecode, kMla})
      for (const DType q : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3})
        for (const DType kv :
             {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kU8})
          for (const HeadDims dims : {HeadDims{40, 40},
                                      {64, 64},
                                      {96, 80},
                                      {128, 128},
                                      {192, 128},
                                      {256, 128},
                                      {256, 256},
                                      {512, 512}})
            for (unsigned flags = 0; flags < 32; ++flags) {
              AttentionProblem problem = step;
              problem.q_dtype = q;
              problem.out_dtype = is_fp8(q) ? DType::kBF16 : q;
              set_kv_dtype(problem, kv);
              if (!problem.mla) problem.head_dim_qk = dims.qk, problem.step.limits.head_dim_v = dims.v;
              problem.positive_scale = (flags & 1) == 0;
              problem.aligned = (flags & 2) == 0;
              problem.strides_fit = (flags & 4) == 0;
              problem.step.has_tree_mask = (flags & 8) != 0;
              if ((flags & 16) != 0) fix_splits(problem);
              fn(problem, gpu);
            }
}

// Tuning of the GPU with every optional candidate enabled.
AttentionTuning all_rows_on(const GpuFacts& gpu) {
  AttentionTuning tuning = attention_tuning(gpu);
  tuning.prefills_e4m3 = tuning.prefills_96 = true;
  return tuning;
}

AttentionKernel kernel_for(const AttentionProblem& problem, const GpuFacts& gpu) {
  return choose(problem, gpu).row.kernel;
}

TEST(ChooseAttention, FindsAKernelForEveryProblemAndUsesEveryKernel) {
  std::set<std::string_view> reached;
  for_each_problem([&](AttentionProblem problem, const GpuFacts& gpu) {
    const AttentionChoice choice = choose(problem, gpu);
    problem.plan = choice.plan;
    EXPECT_TRUE(choice.row.supports(problem, gpu)) << choice.row.name;
    reached.insert(choice.row.name);
  });
  for (const AttentionRow& row : attention_rows())
    EXPECT_TRUE(reached.contains(row.name)) << row.name << ": no problem on any GPU selects it";
}

TEST(ChooseAttention, FindsAPlanForEveryStepAndUsesEveryPlan) {
  std::set<PlanKind> reached;
  const auto plan = [&](const AttentionProblem& problem, const GpuFacts& gpu) {
    const PlanShape shape = choose_plan(problem.step, gpu);
    EXPECT_GT(shape.num_ctas, 0);
    EXPECT_EQ(problem.step.limits.num_q_heads % shape.num_head_groups, 0);
    EXPECT_EQ(shape.num_head_groups % shape.heads_per_round, 0);
    reached.insert(shape.kind);
  };
  for_each_problem(plan);
  for (const int num_reqs : {1, 2, 16, 32})
    for (const int seqlen_q : {1, 4, 8, 16, 25, 200})
      for (const int max_seqlen_kv : {0, 1000, 2049, 20000})
        for (const int num_kv_heads : {1, 8}) {
          AttentionProblem problem = make_attention(num_reqs, seqlen_q, 4 * num_kv_heads, num_kv_heads, 128);
          problem.step.max_seqlen_kv = max_seqlen_kv;
          plan(problem, kH100);
        }
  for (const PlanRow& row : plan_rows())
    EXPECT_TRUE(reached.contains(row.kind)) << row.name << ": no step on any GPU selects it";
}

// All layers of a step share a plan.
TEST(ChooseAttention, PlanDependsOnTheStepOnly) {
  for_each_problem([](AttentionProblem problem, const GpuFacts& gpu) {
    const AttentionChoice choice = choose(problem, gpu);
    const PlanShape plan = choose_plan(problem.step, gpu);
    EXPECT_EQ(choice.plan.kind, plan.kind);
    EXPECT_EQ(choice.plan.num_ctas, plan.num_ctas);
    problem.plan = plan;
    EXPECT_EQ(&choose(problem, gpu).row, &choice.row);
  });
}

TEST(ChooseAttention, DecodesShortRequestsInClustersOnComputeCapability90Only) {
  for (const GpuFacts& gpu : kGpus)
    EXPECT_EQ(choose_plan(kSingleRequestDecode.step, gpu).cluster_size > 1, gpu.runs_sm90a());
  AttentionStep step = kSingleRequestDecode.step;
  EXPECT_TRUE(plan_depends_on_kv_len(step, kH100));
  EXPECT_FALSE(plan_depends_on_kv_len(step, kA100));
  step.max_seqlen_kv = kShortRequestMaxKeys + 1;
  EXPECT_EQ(choose_plan(step, kH100).cluster_size, 1);
  step = kDecode.step;  // more work tiles than clusters
  EXPECT_FALSE(plan_depends_on_kv_len(step, kH100));
}

TEST(ChooseAttention, PlansInlineOnlyIfTheCallMayDeriveItsPlan) {
  AttentionStep step = kDecode.step;
  EXPECT_FALSE(choose_plan(step, kH100).inline_plan);
  step.plans_inline = true;
  EXPECT_TRUE(choose_plan(step, kH100).inline_plan);
  EXPECT_TRUE(choose_plan(step, kA100).inline_plan);
  step.num_reqs = attention_tuning(kH100).inline_plan_max_reqs + 1;
  EXPECT_FALSE(choose_plan(step, kH100).inline_plan);
  step = kPrefill.step;
  step.plans_inline = true;
  EXPECT_FALSE(choose_plan(step, kH100).inline_plan);
}

TEST(ChooseAttention, ChoosesTheSmallestFittingInstance) {
  for_each_problem([](AttentionProblem problem, const GpuFacts& gpu) {
    const AttentionChoice choice = choose(problem, gpu, all_rows_on(gpu));
    const AttentionRow& chosen = choice.row;
    problem.plan = choice.plan;
    if (chosen.dims == HeadDims{}) return;
    EXPECT_GE(chosen.dims.qk, problem.head_dim_qk);
    EXPECT_GE(chosen.dims.v, problem.head_dim_v());
    for (const AttentionRow& row : attention_rows())
      if (row.kernel == chosen.kernel && row.dims.qk < chosen.dims.qk) {
        EXPECT_FALSE(row.supports(problem, gpu));
      }
  });
}

TEST(ChooseAttention, FallsBackToTheRowKernel) {
  for (const GpuFacts& gpu : kGpus)
    for (const AttentionProblem& step : {kPrefill, kDecode, kSingleRequestDecode, kMla}) {
      const auto expect_rows = [&](const std::function<void(AttentionProblem&)>& change) {
        AttentionProblem problem = step;
        change(problem);
        EXPECT_EQ(kernel_for(problem, gpu), AttentionKernel::kRows);
      };
      expect_rows([](auto& p) { p.q_dtype = p.kv_dtype = p.out_dtype = DType::kF32; });
      expect_rows([](auto& p) { p.kv_dtype = DType::kF16; });
      expect_rows([](auto& p) { p.out_dtype = DType::kF16; });
      expect_rows([](auto& p) { p.positive_scale = false; });
      expect_rows([](auto& p) { p.aligned = false; });
      expect_rows([](auto& p) { p.strides_fit = false; });
    }
}

TEST(ChooseAttention, ChoosesWideKernelsAtHeadDim512) {
  AttentionProblem decode = make_attention(8, 1, 32, 4, 512);
  EXPECT_EQ(kernel_for(decode, kH100), AttentionKernel::kSm90WideDecode);
  EXPECT_EQ(kernel_for(decode, kA100), AttentionKernel::kSm80WideTiles);
  EXPECT_EQ(kernel_for(decode, kL40S), AttentionKernel::kRows) << "100 KB of shared memory";
  decode.step.has_tree_mask = true;
  EXPECT_EQ(kernel_for(decode, kH100), AttentionKernel::kSm90WideDecode);
  AttentionProblem prefill = make_attention(1, 4096, 32, 4, 512);
  EXPECT_EQ(kernel_for(prefill, kH100), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choose(prefill, kH100).row.dims, (HeadDims{512, 512}));
  EXPECT_EQ(kernel_for(prefill, kA100), AttentionKernel::kSm80WideTiles);
  prefill.step.has_tree_mask = true;
  EXPECT_EQ(kernel_for(prefill, kH100), AttentionKernel::kSm90WideDecode);
  // Fewer work tiles than pairs of CTAs.
  EXPECT_EQ(kernel_for(make_attention(1, 128, 32, 4, 512), kH100), AttentionKernel::kSm90WideDecode);
  for (AttentionProblem problem : {decode, prefill}) {
    set_kv_dtype(problem, DType::kF8E4M3);
    EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
    set_kv_dtype(problem, DType::kBF16);
    fix_splits(problem);
    EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
  }
}

TEST(ChooseAttention, DividesTheHeadsOfASingleWideKvHeadForMlaOnly) {
  const AttentionProblem grouped = make_attention(8, 1, 128, 1, 512);
  EXPECT_EQ(choose(grouped, kH100).plan.num_head_groups, 2);
  EXPECT_EQ(kernel_for(grouped, kH100), AttentionKernel::kRows);
  EXPECT_EQ(kernel_for(make_attention(8, 1, 64, 1, 512), kH100), AttentionKernel::kSm90WideDecode);
  EXPECT_EQ(kernel_for(make_attention(8, 8, 8, 1, 512), kH100), AttentionKernel::kSm90WideDecode);
}

TEST(ChooseAttention, ConvertsAlignedFp8Keys) {
  AttentionProblem problem = kDecode;
  set_kv_dtype(problem, DType::kF8E4M3);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
  problem.head_dim_qk = 120;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
  problem = kMla;
  set_kv_dtype(problem, DType::kF8E4M3);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Mla);
  EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kRows);
  problem.head_dim_qk = 520;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
}

TEST(ChooseAttention, ConvertsScaledRowsIfTheyFitSharedMemory) {
  AttentionProblem problem = kMla;
  problem.kv_dtype = DType::kU8;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80ScaledMla);
  EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kRows);
  problem.q_dtype = problem.out_dtype = DType::kF32;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
  problem = kMla;
  problem.kv_dtype = DType::kU8;
  fix_splits(problem);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
}

TEST(ChooseAttention, ChoosesSingleDecodeForOnePlainRequest) {
  const auto expect_kernel = [](AttentionKernel kernel, const std::function<void(AttentionProblem&)>& change,
                                const GpuFacts& gpu) {
    AttentionProblem problem = kSingleRequestDecode;
    change(problem);
    EXPECT_EQ(kernel_for(problem, gpu), kernel);
  };
  const auto expect_single_request_decode = [&](const std::function<void(AttentionProblem&)>& change) {
    expect_kernel(AttentionKernel::kSm90SingleRequestDecode, change, kH100);
  };
  expect_single_request_decode([](auto&) {});
  expect_single_request_decode([](auto& p) { p.q_dtype = p.kv_dtype = p.out_dtype = DType::kF16; });
  expect_single_request_decode([](auto& p) { set_head_dims(p, 64); });
  const auto expect_tiles = [&](const std::function<void(AttentionProblem&)>& change,
                                const GpuFacts& gpu = kH100) {
    expect_kernel(AttentionKernel::kSm80Tiles, change, gpu);
  };
  expect_tiles([](auto&) {}, kA100);
  expect_tiles([](auto& p) { p.plain_token = false; });
  expect_tiles([](auto& p) { p.step.has_tree_mask = true; });
  expect_tiles([](auto& p) { p.out_dtype = DType::kF32; });
  expect_tiles([](auto& p) { p.kv_dtype = DType::kF8E4M3; });
  expect_tiles([](auto& p) { p.step.limits.num_q_heads = 16 * p.step.limits.num_kv_heads; });
  expect_tiles([](auto& p) { set_head_dims(p, 96); });
  expect_tiles([](auto& p) { p.head_dim_qk = 192; });
}

TEST(ChooseAttention, RunsPrefillOnComputeCapability90Only) {
  for (const GpuFacts& gpu : kGpus)
    EXPECT_EQ(kernel_for(kPrefill, gpu),
              gpu.runs_sm90a() ? AttentionKernel::kSm90Prefill : AttentionKernel::kSm80Tiles);
}

TEST(ChooseAttention, RunsPrefillForNearlyOneWorkTilePerSmOfOneRequest) {
  // 8 heads on 132 SMs, 15 row tiles of 128 rows per head.
  AttentionProblem problem = kPrefill;
  set_seqlen_q(problem, 15 * 128 / 4);
  EXPECT_FALSE(choose_plan(problem.step, kH100).streamed);
  set_seqlen_q(problem, 14 * 128 / 4);
  EXPECT_TRUE(choose_plan(problem.step, kH100).divides_prefill_keys());
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
  // Requests of one step may have different lengths, so that their keys are divided.
  set_seqlen_q(problem, 15 * 128 / 8);
  set_num_reqs(problem, 2);
  EXPECT_TRUE(choose_plan(problem.step, kH100).divides_prefill_keys());
  // Row tiles for wide values are lower. Plans do not divide the keys of prefill for them.
  set_head_dims(problem, 256);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
  set_num_reqs(problem, 1);
  set_seqlen_q(problem, 15 * 128 / 4);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
  set_seqlen_q(problem, 14 * 128 / 4);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
}

// Plans for GPUs of compute capability 9.0 assume its own kernel, so the sm80 kernel never runs there.
// A range of patches that attends to all patches of its image, and windows of Qwen2.5-VL.
TEST(ChooseAttention, RunsPrefillForVisionTowersAndTilesForTheirWindows) {
  const auto make_tower = [](int num_reqs, int seqlen_q, int num_heads, int head_dim) {
    AttentionProblem problem = make_attention(num_reqs, seqlen_q, num_heads, num_heads, head_dim);
    problem.step.limits.split_rule = SplitRule::kNone;
    problem.causal = false;
    return problem;
  };
  // Qwen3-VL-2B; Gemma 3 and Qwen3-VL-8B; Qwen2.5-VL; Pixtral.
  constexpr std::pair<int, std::string_view> kTowers[] = {
      {64, "sm90 prefill 64/64"}, {72, "sm90 prefill 96/96"}, {80, "sm90 prefill 96/96"}};
  for (const auto& [head_dim, name] : kTowers)
    for (const int num_patches : {4096, 1024, 256})
      EXPECT_EQ(choose(make_tower(1, num_patches, 16, head_dim), kH100).row.name, name) << num_patches;
  EXPECT_EQ(choose(make_tower(64, 64, 16, 80), kH100).row.name, "sm80 tiles 128/128");
  EXPECT_EQ(choose(make_tower(1, 4096, 16, 72), kA100).row.name, "sm80 tiles 128/128");
}

TEST(ChooseAttention, RunsOnlyTheSm90MlaKernelOnComputeCapability90) {
  for_each_problem([](const AttentionProblem& problem, const GpuFacts& gpu) {
    EXPECT_NE(kernel_for(problem, gpu),
              gpu.runs_sm90a() ? AttentionKernel::kSm80Mla : AttentionKernel::kSm90Mla);
  });
  EXPECT_EQ(kernel_for(kMla, kH100), AttentionKernel::kSm90Mla);
}

TEST(ChooseAttention, RunsPrefillForFp8KeysOfHeadDimsUpTo128Only) {
  AttentionProblem problem = kPrefill;
  set_kv_dtype(problem, DType::kF8E4M3);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
  problem.head_dim_qk = 192;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
}

TEST(ChooseAttention, RunsE4m3PrefillIfQueriesAndKeysAreE4m3) {
  AttentionProblem problem = kPrefill;
  problem.q_dtype = DType::kF8E4M3;
  set_kv_dtype(problem, DType::kF8E4M3);
  const AttentionTuning tuning = all_rows_on(kH100);
  for (const DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
    problem.out_dtype = out;
    EXPECT_EQ(choose(problem, kH100, tuning).row.name, "sm90 prefill e4m3 128/128");
    EXPECT_EQ(choose(problem, kA100, tuning).row.kernel, AttentionKernel::kRows);
  }
  const auto expect_rows = [&](const std::function<void(AttentionProblem&)>& change) {
    AttentionProblem other = problem;
    change(other);
    EXPECT_EQ(choose(other, kH100, tuning).row.kernel, AttentionKernel::kRows);
  };
  expect_rows([](auto& p) { p.kv_dtype = DType::kBF16; });
  expect_rows([](auto& p) { p.kv_dtype = DType::kF8E5M2; });
  expect_rows([](auto& p) { p.step.limits.head_dim_v = 72; });
  expect_rows([](auto& p) { set_head_dims(p, 256); });
  expect_rows([](auto& p) { fix_splits(p); });
  expect_rows([](auto& p) { p.step.has_tree_mask = true; });
  expect_rows([](auto& p) { set_seqlen_q(p, 4); });
  expect_rows([](auto& p) { set_seqlen_q(p, 16), p.step.plans_inline = true; });
  // The plan was made for 16-bit K/V.
  expect_rows([](auto& p) {
    set_seqlen_q(p, 16);
    set_num_reqs(p, 4);
    p.step.limits.kv_dtype = DType::kBF16;
    EXPECT_EQ(choose_plan(p.step, kH100).kind, PlanKind::kVerify);
  });
}

// With fixed splits, prefill computes the bits of the sm80 kernel, which processes steps of few rows.
TEST(ChooseAttention, RunsPrefillWithFixedSplitsForHeadDims128Only) {
  const auto choice = [](const auto& change) {
    AttentionProblem problem = kPrefill;
    fix_splits(problem);
    set_head_dims(problem, 128);
    change(problem);
    return kernel_for(problem, kH100);
  };
  EXPECT_EQ(choice([](auto&) {}), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choice([](auto& p) { set_head_dims(p, 96); }), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(choice([](auto& p) { set_head_dims(p, 64); }), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choice([](auto& p) { p.head_dim_qk = 192; }), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choice([](auto& p) { p.kv_dtype = DType::kF8E4M3; }), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(choice([](auto& p) { set_seqlen_q(p, 16); }), AttentionKernel::kSm80Tiles);
}

// Plans depend on the head dim of V only.
TEST(ChooseAttention, UsesTilesOfThe256Instance) {
  AttentionProblem problem = kDecode;
  problem.head_dim_qk = 256;
  const auto plan_tiles_with = [&](int tile_rows) {
    set_seqlen_q(problem, tile_rows / 4);
    ASSERT_EQ(choose_plan(problem.step, kA100).tile_rows, tile_rows);
  };
  for (const int tile_rows : {8, 16, 64}) {
    plan_tiles_with(tile_rows);
    EXPECT_EQ(choose(problem, kA100).row.name, "sm80 tiles 256/256") << tile_rows;
  }
  for (const int tile_rows : {32, 128}) {
    plan_tiles_with(tile_rows);
    EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kRows) << tile_rows;
  }
  // A request's bits must not depend on another request's length, which determines the height of tiles.
  fix_splits(problem);
  for (const int tile_rows : {64, 128}) {
    plan_tiles_with(tile_rows);
    EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kRows) << tile_rows;
  }
}

// Tree masks occur only with few new tokens.
TEST(ChooseAttention, UsesSm80ForTreeMasks) {
  AttentionProblem problem = kPrefill;
  problem.step.has_tree_mask = true;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
  problem = kMla;
  fix_splits(problem);
  EXPECT_EQ(choose_plan(problem.step, kH100).tile_rows, 64);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kRows);
}

TEST(ChooseAttention, ChoosesSm80SplitKvForFewWorkTiles) {
  AttentionProblem problem = kPrefill;
  set_head_dims(problem, 256);
  set_seqlen_q(problem, 4096 / 16);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
  problem.step.limits.num_workers = 1;
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
}

// Then a request's bits are those of one kernel.
TEST(ChooseAttention, RunsOneKernelForAnyNumberOfRequestsWithoutSplits) {
  AttentionProblem problem = kPrefill;
  problem.step.limits.split_rule = SplitRule::kNone;
  set_seqlen_q(problem, 25);
  for (const int num_reqs : {1, 2, 30, 1000}) {
    set_num_reqs(problem, num_reqs);
    EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
    EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kSm80Tiles);
  }
}

TEST(ChooseAttention, ChoosesPrefillForFewTilesWithSplitKv) {
  AttentionProblem problem = kPrefill;
  set_seqlen_q(problem, 4096 / 16);
  EXPECT_TRUE(choose_plan(problem.step, kH100).divides_prefill_keys());
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kSm80Tiles);
  set_seqlen_q(problem, 16);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm80Tiles);
}

// The prefill kernel reads keys and values once; the sm80 kernel reads them once per 16 rows.
TEST(ChooseAttention, ChoosesPrefillForLargeVerifySteps) {
  AttentionProblem problem = kDecode;
  set_seqlen_q(problem, 16);
  EXPECT_EQ(choose_plan(problem.step, kH100).kind, PlanKind::kVerify);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
  EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kSm80Tiles);
  const auto expect_tiles = [&](const std::function<void(AttentionProblem&)>& change) {
    AttentionProblem other = problem;
    change(other);
    EXPECT_EQ(kernel_for(other, kH100), AttentionKernel::kSm80Tiles);
  };
  expect_tiles([](auto& p) { set_kv_dtype(p, DType::kF8E4M3); });
  expect_tiles([](auto& p) { p.kv_dtype = DType::kF8E4M3; });  // differs from the plan's dtype
  expect_tiles([](auto& p) { p.step.has_tree_mask = true; });
  expect_tiles([](auto& p) { set_seqlen_q(p, 4); });
  expect_tiles([](auto& p) { set_num_reqs(p, 1); });
  expect_tiles([](auto& p) { p.head_dim_qk = 256; });
  set_seqlen_q(problem, 8);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
  expect_tiles([](auto& p) { set_num_reqs(p, 32); });
  expect_tiles([](auto& p) { set_num_reqs(p, 2); });
}

// Plans depend on the head dim of V only. Their tiles are taller than those of the widest sm80 instance.
TEST(ChooseAttention, ChoosesPrefillWithoutATileInstance) {
  AttentionProblem problem = kPrefill;
  problem.head_dim_qk = 256;
  EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kRows);
  EXPECT_EQ(kernel_for(problem, kH100), AttentionKernel::kSm90Prefill);
}

TEST(ChooseAttention, FallsBackToTheRowKernelIfSharedMemoryIsShort) {
  AttentionProblem problem = kPrefill;
  set_head_dims(problem, 256);
  EXPECT_EQ(kernel_for(problem, kA100), AttentionKernel::kSm80Tiles);
  EXPECT_EQ(kernel_for(kMla, kA100), AttentionKernel::kSm80Mla);
  EXPECT_EQ(kernel_for(kMla, kL40S), AttentionKernel::kRows);
}

}  // namespace
}  // namespace attend::kernels::cuda
