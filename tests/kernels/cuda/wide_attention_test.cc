// Attention at head dim 512 on GPUs of compute capability 9.0 (kernels/cuda/sm90/wide_decode and prefill in
// pairs of CTAs).
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::Lengths;
using conformance::on_tensor_cores;
using kernels::cuda::AttentionKernel;

AttentionKernel kernel_for(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).row.kernel;
}
bool is_wide_decode(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return kernel_for(args, plan) == AttentionKernel::kSm90WideDecode;
}
bool is_prefill(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return kernel_for(args, plan) == AttentionKernel::kSm90Prefill;
}

// Sets head dim 512, with K and V in the dtype of q and without fixed splits.
std::vector<AttentionCase> at_head_dim_512(std::vector<AttentionCase> cases) {
  for (AttentionCase& c : cases) {
    c.head_dim_qk = c.head_dim_v = 512;
    c.kv_dtype = c.q_dtype;
    c.head_scales = false;
    if (c.split_rule == kernels::SplitRule::kFixed) c.split_rule = kernels::SplitRule::kBalanced;
  }
  return cases;
}
std::vector<AttentionCase> wide_cases() {
  return at_head_dim_512(on_tensor_cores(conformance::conformance_cases()));
}

// Limits requests to 16 or 64 rows.
std::vector<AttentionCase> with_few_rows(std::vector<AttentionCase> cases) {
  size_t i = 0;
  for (AttentionCase& c : cases) {
    const int max_seqlen_q = std::max(1, (i % 2 == 0 ? 16 : 64) / (c.num_q_heads / c.num_kv_heads));
    for (Lengths& lengths : c.requests) {
      const int fewer = std::max(0, lengths.seqlen_q - max_seqlen_q);
      lengths.seqlen_q -= fewer;
      if (lengths.seqlen_kv < lengths.seqlen_q + fewer)
        lengths.seqlen_kv = std::min(lengths.seqlen_kv, lengths.seqlen_q);
    }
    c.max_seqlen_q_slack = 0;
    ++i;
  }
  return cases;
}

// Adds new tokens until each request fills more than half a work tile, on one to three pairs of CTAs.
std::vector<AttentionCase> with_many_rows(std::vector<AttentionCase> cases) {
  size_t i = 0;
  for (AttentionCase& c : cases) {
    const int more = 70 / (c.num_q_heads / c.num_kv_heads) + 1;
    if (c.requests.empty()) c.requests.push_back({});
    for (Lengths& lengths : c.requests) {
      lengths.seqlen_q += more;
      lengths.seqlen_kv += more;
    }
    c.tree = conformance::TreeShape::kNone;
    c.num_workers =
        std::min(2 * (static_cast<int>(i % 3) + 1), 2 * static_cast<int>(c.requests.size()) * c.num_kv_heads);
    ++i;
  }
  return cases;
}

class CudaWideAttentionPart : public NeedsHopper, public testing::WithParamInterface<int> {
 protected:
  static std::vector<AttentionCase> part(const std::vector<AttentionCase>& cases) {
    return select_part(cases, GetParam());
  }
};

TEST_P(CudaWideAttentionPart, ConformsWithFewRows) {
  run_conformance(
      [](const auto& args, const auto& built) { attention_on_gpu_if(is_wide_decode, args, built); },
      part(with_few_rows(wide_cases())));
}
TEST_P(CudaWideAttentionPart, ConformsWithAnyRows) {
  const auto is_fast = [](const auto& args, const auto& plan) {
    return kernel_for(args, plan) != AttentionKernel::kRows;
  };
  run_conformance([&](const auto& args, const auto& built) { attention_on_gpu_if(is_fast, args, built); },
                  part(wide_cases()));
}
TEST_P(CudaWideAttentionPart, ConformsWithManyRows) {
  run_conformance([](const auto& args, const auto& built) { attention_on_gpu_if(is_prefill, args, built); },
                  part(with_many_rows(wide_cases())));
}
TEST_P(CudaWideAttentionPart, MatchesTheBitsOfASeparatePlan) {
  std::vector<AttentionCase> cases = with_few_rows(wide_cases());
  for (AttentionCase& c : cases) c.split_rule = kernels::SplitRule::kBalanced;
  run_conformance(attention_planned_inline, part(cases));
}
TEST_P(CudaWideAttentionPart, DoesNotDependOnTheOrderOfPages) {
  run_page_order(attention_on_gpu, part(at_head_dim_512(on_tensor_cores(conformance::page_order_cases()))));
}
INSTANTIATE_TEST_SUITE_P(Every, CudaWideAttentionPart, testing::Range(0, kParts));

using CudaWideAttention = NeedsHopper;

// Maximum scores that rise strongly from tile to tile, so that P overflows and scores are computed again.
TEST_F(CudaWideAttention, RescalesWhenScoresRiseFromTileToTile) {
  std::vector<AttentionCase> cases;
  for (const bool causal : {true, false})
    for (const float logit_cap : {0.0f, 50.0f})
      for (const int seqlen_q : {2, 100})
        cases.push_back({.requests = {{seqlen_q, 300}, {seqlen_q, 150}, {seqlen_q, 400}},
                         .num_q_heads = 8,
                         .num_kv_heads = 2,
                         .page_size = 16,
                         .causal = causal,
                         .window_left = causal ? 100 : -1,
                         .logit_cap = logit_cap,
                         .spread = conformance::ScoreSpread::kSharp,
                         .num_workers = 4});
  run_conformance(attention_on_gpu, at_head_dim_512(on_tensor_cores(cases)));
}

}  // namespace
}  // namespace attend::testing_cuda
