#include "attend/kernels/attention/cuda/attention.h"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/conformance/tolerance.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::Lengths;
using conformance::on_tensor_cores;

class CudaAttentionPart : public NeedsGpu, public testing::WithParamInterface<int> {};

TEST_P(CudaAttentionPart, ConformsToTheReference) {
  run_conformance(attention_on_gpu, select_part(conformance::conformance_cases(), GetParam()));
}
TEST_P(CudaAttentionPart, ConformsToTheReferenceOnTensorCores) {
  run_conformance(attention_on_gpu,
                  select_part(on_tensor_cores(conformance::conformance_cases()), GetParam()));
}
TEST_P(CudaAttentionPart, DoesNotDependOnTheOrderOfPages) {
  run_page_order(attention_on_gpu, select_part(on_tensor_cores(conformance::page_order_cases()), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Every, CudaAttentionPart, testing::Range(0, kParts));

// Instance of the sm80 kernels.
struct Instance {
  DType kv_dtype;
  int head_dim_qk, head_dim_v;
};
std::ostream& operator<<(std::ostream& out, const Instance& instance) {
  return out << instance.kv_dtype << " " << instance.head_dim_qk << "/" << instance.head_dim_v;
}

class CudaAttentionInstance : public NeedsGpu, public testing::WithParamInterface<Instance> {};

// Row tiles of every height: unsplit, split among CTAs and merged by the last CTA or by the merge kernel, and
// with fixed splits. Few keys, since compute-sanitizer slows kernels down a thousandfold.
TEST_P(CudaAttentionInstance, ConformsInAFewSmallCases) {
  const Instance& instance = GetParam();
  const bool fp8 = is_fp8(instance.kv_dtype);
  std::vector<AttentionCase> cases;
  for (const int seqlen_q : {1, 20, 50})
    for (const kernels::SplitRule rule :
         {kernels::SplitRule::kNone, kernels::SplitRule::kBalanced, kernels::SplitRule::kFixed}) {
      AttentionCase c{.requests = {{seqlen_q, 150}, {1, 65}, {1, 1}},
                      .num_q_heads = 4,
                      .num_kv_heads = 2,
                      .head_dim_qk = instance.head_dim_qk,
                      .head_dim_v = instance.head_dim_v,
                      .q_dtype = fp8 || instance.kv_dtype == DType::kBF16 ? DType::kBF16 : DType::kF16,
                      .kv_dtype = instance.kv_dtype,
                      .page_size = cases.size() % 2 == 0 ? 1 : 16,
                      .page_order = conformance::PageOrder::kShuffled,
                      .split_rule = rule,
                      .split_tokens = 64,
                      .seed = cases.size()};
      c.out_dtype = rule == kernels::SplitRule::kFixed ? DType::kF32 : c.q_dtype;
      switch (cases.size() % 4) {
        case 0:
          c.window_left = 90;
          break;
        case 1:
          c.sinks = true;
          c.window_right = 20;
          break;
        case 2:
          c.logit_cap = 20.0f;
          break;
        default:
          c.index = kernels::KvIndexKind::kPageTable;
      }
      cases.push_back(c);
    }
  run_conformance(attention_on_gpu, cases);
}
INSTANTIATE_TEST_SUITE_P(
    Each, CudaAttentionInstance, testing::ValuesIn([] {
      std::vector<Instance> all;
      for (const DType kv_dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2})
        for (const auto& [head_dim_qk, head_dim_v] : {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}})
          all.push_back({kv_dtype, head_dim_qk, head_dim_v});
      return all;
    }()));

using CudaAttention = NeedsGpu;

TEST_F(CudaAttention, DoesNotDependOnTheBatchUnderFixedSplits) {
  run_batch_invariance(attention_on_gpu, conformance::batch_invariance_cases());
}
TEST_F(CudaAttention, DoesNotDependOnTheBatchUnderFixedSplitsOnTensorCores) {
  run_batch_invariance(attention_on_gpu, on_tensor_cores(conformance::batch_invariance_cases()));
}
// Maximum scores that rise strongly from tile to tile, and rows that attend to no key of the first tiles, so
// that accumulators are rescaled often.
TEST_F(CudaAttention, RescalesWhenScoresRiseFromTileToTile) {
  AttentionCase c{.requests = {{300, 1500}, {700, 700}, {33, 2000}},
                  .num_q_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim_qk = 64,
                  .head_dim_v = 64,
                  .page_size = 16,
                  .spread = conformance::ScoreSpread::kSharp};
  std::vector<AttentionCase> cases(10, c);
  cases[1].window_left = 100;
  cases[2].causal = false;
  cases[3].chunk = 96;
  cases[4].head_dim_qk = cases[4].head_dim_v = 128;
  cases[5].logit_cap = 50.0f;
  for (size_t i : {6, 7}) cases[i].head_dim_qk = cases[i].head_dim_v = 256;
  cases[7].window_left = 100;
  cases[8].window_left = 70, cases[8].window_right = 200;
  cases[9].chunk = 300, cases[9].window_right = 1000;
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].q_dtype = cases[i].kv_dtype = cases[i].out_dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    cases[i].seed = static_cast<uint32_t>(i + 1);
  }
  run_conformance(attention_on_gpu, cases);
}
// Work tiles split among CTAs, with numbers of heads that neighboring CTAs process in one round, in several
// rounds, or one after another: decode, verify, and rows with partial results for the merge kernel.
TEST_F(CudaAttention, SplitsTheKeysOfAnyNumberOfHeads) {
  std::vector<AttentionCase> cases;
  for (const int num_kv_heads : {3, 8, 11, 12, 20})
    for (const int seqlen_q : {1, 3, 40})
      cases.push_back({.requests = {{1, 1500}, {1, 1}, {seqlen_q, 400}, {seqlen_q, 64}, {1, 129}},
                       .num_q_heads = 2 * num_kv_heads,
                       .num_kv_heads = num_kv_heads,
                       .page_size = 16,
                       .split_rule = kernels::SplitRule::kBalanced});
  run_conformance(attention_on_gpu, on_tensor_cores(cases));
}
// Few work tiles, each processed by one cluster or several: more CTAs than KV tiles, several work tiles per
// cluster, and a work tile split between two clusters, in tiles of 8, 16 and 32 rows. Without clusters, CTAs
// share the merge.
std::vector<AttentionCase> cases_with_few_work_tiles(bool short_requests) {
  std::vector<AttentionCase> cases;
  const std::vector<std::vector<Lengths>> batches{{{1, 5000}},
                                                  {{1, 1}},
                                                  {{1, 63}},
                                                  {{2, 1030}},
                                                  {{4, 2500}},
                                                  {{1, 3000}, {1, 1}, {0, 0}, {1, 777}, {1, 64}},
                                                  {{3, 900}, {4, 4}, {1, 3000}}};
  const std::vector<std::pair<int, int>> head_dims{{64, 64}, {128, 128}, {192, 128}, {256, 256}, {80, 80}};
  for (const auto& requests : batches)
    for (const int num_kv_heads : {1, 3, 8})
      for (const int num_workers : {0, 84, 24, 7}) {
        AttentionCase c{.requests = requests,
                        .num_q_heads = num_kv_heads * (cases.size() % 3 == 0 ? 8 : 4),
                        .num_kv_heads = num_kv_heads,
                        .page_size = cases.size() % 2 == 0 ? 1 : 16,
                        .page_order = conformance::PageOrder::kShuffled,
                        .split_rule = kernels::SplitRule::kBalanced,
                        .num_workers = num_workers,
                        .seed = cases.size()};
        c.short_requests = short_requests;
        std::tie(c.head_dim_qk, c.head_dim_v) = head_dims[cases.size() % head_dims.size()];
        switch (cases.size() % 7) {
          case 0:
            c.window_left = 300;
            break;
          case 1:
            c.sinks = true;
            break;
          case 2:
            c.spread = conformance::ScoreSpread::kSharp;
            break;
          case 3:
            c.logit_cap = 20.0f;
            break;
          default:
            break;
        }
        cases.push_back(c);
      }
  return on_tensor_cores(cases);
}

using CudaAttentionClusters = NeedsHopper;

TEST_F(CudaAttentionClusters, SplitTheKeysOfFewWorkTiles) {
  int num_in_clusters = 0, num_exclusive = 0;  // num_exclusive: clusters with one CTA per SM
  const auto counts = [&](const kernels::AttentionArgs&, const kernels::cuda::DevicePlan& plan) {
    num_in_clusters += plan.view().cluster_size > 1 ? 1 : 0;
    num_exclusive += plan.view().cluster_size > 1 && plan.view().num_ctas_per_sm == 1 ? 1 : 0;
    return true;
  };
  run_conformance([&](const kernels::AttentionArgs& args,
                      const conformance::BuiltCase& built) { attention_on_gpu_if(counts, args, built); },
                  cases_with_few_work_tiles(true));
  EXPECT_GT(num_exclusive, 10);
  EXPECT_GT(num_in_clusters, num_exclusive + 5);
}
// Long requests use no clusters. The shared-memory carveout must fit all CTAs resident on an SM.
TEST_F(CudaAttentionClusters, FewLongWorkTilesUseSharedMemoryCarveout) {
  std::vector<AttentionCase> cases(3, {.requests = {{1, 3000}, {1, 5}},
                                       .num_q_heads = 4,
                                       .num_kv_heads = 1,
                                       .head_dim_qk = 128,
                                       .head_dim_v = 128,
                                       .q_dtype = DType::kBF16,
                                       .out_dtype = DType::kBF16,
                                       .kv_dtype = DType::kBF16,
                                       .page_size = 16,
                                       .split_rule = kernels::SplitRule::kBalanced});
  cases[1].kv_dtype = DType::kF8E4M3;
  cases[2].head_dim_qk = cases[2].head_dim_v = 256;  // one CTA per SM
  for (const AttentionCase& c : cases) {
    conformance::BuiltCase built(c);
    built.args.batch.max_seqlen_kv = 3000;
    attention_on_gpu_if(
        [&](const kernels::AttentionArgs&, const kernels::cuda::DevicePlan& plan) {
          return plan.view().cluster_size == 1 && plan.view().num_ctas_per_sm == (c.head_dim_v > 192 ? 1 : 2);
        },
        built.args, built);
    const auto wrong = conformance::mismatch(conformance::expect(built.args), built.args.out, built.args.lse);
    EXPECT_FALSE(wrong) << *wrong << "\n  " << c;
  }
}
// Returns true if several CTAs merge the longest work tile and no CTA processes two work tiles.
bool shares_a_merge(const conformance::BuiltCase& built, const kernels::cuda::PlanView& plan) {
  const AttentionCase& c = built.spec;
  kernels::cuda::PartitionWork work{};
  for (const conformance::Lengths& lengths : c.requests) {
    if (lengths.seqlen_q == 0) continue;
    const int num_kv_tiles =
        std::max(1, (lengths.seqlen_kv + kernels::cuda::kKeyTile - 1) / kernels::cuda::kKeyTile);
    work.num_work_tiles += c.num_kv_heads / plan.heads_per_round;
    work.num_kv_tiles += c.num_kv_heads / plan.heads_per_round * num_kv_tiles;
    work.longest = std::max(work.longest, num_kv_tiles);
  }
  const kernels::cuda::KvPartition partition = partition_kv_tiles(plan.partition, work);
  return plan.cluster_size == 1 && plan.ctas_merge && c.window_left < 0 && partition.exclusive &&
         work.longest > partition.cta_range;
}
TEST_F(CudaAttention, SharesTheMergeOfFewWorkTilesAmongCtas) {
  const std::vector<AttentionCase> cases = cases_with_few_work_tiles(false);
  run_conformance(attention_planned_inline, cases);
  int num_shared = 0;
  run_conformance(
      [&](const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
        const auto counts = [&](const kernels::AttentionArgs&, const kernels::cuda::DevicePlan& plan) {
          num_shared += shares_a_merge(built, plan.view()) ? 1 : 0;
          return true;
        };
        attention_without_waiting_if(counts, args, built);
      },
      cases);
  EXPECT_GT(num_shared, 30);
}
// The instance with 256 columns also computes narrower values, in its own tiles.
TEST_F(CudaAttention, SupportsHeadDim256WithValues128) {
  std::vector<AttentionCase> cases;
  for (const int seqlen_q : {1, 4, 9})
    for (const int num_workers :
         {0, 24})  // more workers select the verify kernel, which has no such instance
      cases.push_back({.requests = {{seqlen_q, 1500}, {1, 64}, {seqlen_q, 300}},
                       .num_q_heads = 8,
                       .num_kv_heads = 2,
                       .head_dim_qk = 256,
                       .head_dim_v = 128,
                       .page_size = 16,
                       .split_rule = kernels::SplitRule::kBalanced,
                       .num_workers = num_workers});
  run_conformance(attention_on_gpu, on_tensor_cores(cases));
}
// Requests with many splits, with and without clusters, in tiles of 16 and 32 rows.
TEST_F(CudaAttention, MultipliesByDescalesOfHeadsWithFp8Keys) {
  std::vector<AttentionCase> cases;
  for (const auto& [head_dim_qk, head_dim_v] : {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}})
    for (const int num_reqs : head_dim_qk == 128 ? std::vector{3, 20} : std::vector{3})
      for (const int seqlen_q : head_dim_v > 128 ? std::vector{1, 4} : std::vector{1, 3, 5, 8}) {
        AttentionCase c{.num_q_heads = 8,
                        .num_kv_heads = 2,
                        .head_dim_qk = head_dim_qk,
                        .head_dim_v = head_dim_v,
                        .q_dtype = DType::kBF16,
                        .kv_dtype = cases.size() % 2 == 0 ? DType::kF8E4M3 : DType::kF8E5M2,
                        .page_size = 16,
                        .split_rule = kernels::SplitRule::kBalanced,
                        .seed = cases.size()};
        c.out_dtype = c.q_dtype;
        c.head_scales = true;
        if (cases.size() % 3 == 0) c.logit_cap = 20.0f;
        for (int r = 0; r < num_reqs; ++r) c.requests.push_back({seqlen_q, seqlen_q + r * 97 % 300});
        cases.push_back(c);
      }
  run_conformance(attention_on_gpu, cases);
  run_conformance(attention_planned_inline, cases);
}

// Zero descales act like heads with only zero keys. Rows of the second request attend to no keys.
TEST_F(CudaAttention, ZeroDescaleYieldsTheMeanOfValues) {
  for (const int num_q_heads : {2, 8})
    for (const float logit_cap : {0.0f, 20.0f}) {
      const AttentionCase c{.requests = {{4, 300}, {3, 2}, {1, 900}},
                            .num_q_heads = num_q_heads,
                            .num_kv_heads = 2,
                            .head_dim_qk = 128,
                            .head_dim_v = 128,
                            .q_dtype = DType::kBF16,
                            .out_dtype = DType::kBF16,
                            .kv_dtype = DType::kF8E4M3,
                            .page_size = 16,
                            .head_scales = true,
                            .logit_cap = logit_cap,
                            .split_rule = kernels::SplitRule::kBalanced};
      conformance::BuiltCase built(c);
      const std::vector<float> zeros(static_cast<size_t>(c.num_reqs() * c.num_kv_heads));
      built.args.k_scales.data = zeros.data();
      attention_on_gpu(built.args, built);
      const auto wrong =
          conformance::mismatch(conformance::expect(built.args), built.args.out, built.args.lse);
      EXPECT_FALSE(wrong) << *wrong << "\n  " << c;
    }
}

TEST_F(CudaAttention, DoesNotDependOnTheBatchUnderManyFixedSplits) {
  AttentionCase c{.requests = {{1, 5000}, {3, 2100}, {17, 900}, {150, 1500}},
                  .num_q_heads = 8,
                  .num_kv_heads = 2,
                  .head_dim_qk = 128,
                  .head_dim_v = 128,
                  .page_size = 16,
                  .split_rule = kernels::SplitRule::kFixed,
                  .split_tokens = 256};
  std::vector<AttentionCase> cases(4, c);
  cases[1].sinks = true;
  cases[1].window_left = 1000;
  cases[2].head_dim_qk = cases[2].head_dim_v = 256;
  cases[3].head_dim_qk = cases[3].head_dim_v = 64;
  cases[3].logit_cap = 8.0f;
  run_batch_invariance(attention_on_gpu, on_tensor_cores(cases));
}

TEST_F(CudaAttention, RejectsATensorOnAnotherDevice) {
  cuda::OwnedStream stream(kGpu);
  kernels::AttentionPlan plan({.max_reqs = 1,
                               .max_tokens = 1,
                               .max_kv_tokens = 1,
                               .num_q_heads = 1,
                               .num_kv_heads = 1,
                               .head_dim_v = 64},
                              kGpu);
  const std::vector<int32_t> cu_seqlen_q{0, 1}, seqlen_kv{1}, indptr{0, 1};
  const Tensor host = Tensor::zeros({1, 1, 64}, DType::kBF16);
  const Tensor pool = Tensor::zeros({1, 1, 1, 64}, DType::kBF16);
  kernels::AttentionArgs args;
  args.q = host;
  args.out = host;
  args.kv.k = pool;
  args.kv.v = pool;
  args.kv.index.kind = kernels::KvIndexKind::kContiguous;
  args.kv.index.indptr = indptr.data();
  args.batch.cu_seqlen_q = cu_seqlen_q;
  args.batch.seqlen_kv = seqlen_kv;
  args.batch.max_seqlen_q = 1;
  DeviceArrays arrays(stream.get());
  kernels::QueryBatch on_gpu = args.batch;
  on_gpu.cu_seqlen_q = arrays.view(args.batch.cu_seqlen_q);
  on_gpu.seqlen_kv = arrays.view(args.batch.seqlen_kv);
  plan.plan(on_gpu, args.attention_mask, stream.get());
  EXPECT_THROW(kernels::attention(args, plan, stream.get()), Error);
  cuda::synchronize(stream.get());
}

}  // namespace
}  // namespace attend::testing_cuda
