// Attention calls that derive their plan themselves (AttentionPlan::plan_inline).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::Lengths;
using conformance::on_tensor_cores;

// Limits requests to one row tile of 16 rows, with keys split among one to three SMs, or of 32 or 64 rows,
// with enough SMs that the prefill kernel is not chosen.
std::vector<AttentionCase> with_few_rows(std::vector<AttentionCase> cases) {
  int i = 0;
  for (AttentionCase& c : cases) {
    const int group = c.num_q_heads / c.num_kv_heads,
              max_seqlen_q = std::max(1, std::array{16, 32, 64}[i % 3] / group);
    for (Lengths& lengths : c.requests) {
      // Requests with more queries than keys keep more queries than keys.
      const int fewer = std::max(0, lengths.seqlen_q - max_seqlen_q);
      lengths.seqlen_q -= fewer;
      if (lengths.seqlen_kv < lengths.seqlen_q + fewer)
        lengths.seqlen_kv = std::min(lengths.seqlen_kv, lengths.seqlen_q);
    }
    c.max_seqlen_q_slack = 0;
    c.split_rule = kernels::SplitRule::kBalanced;
    // Few work tiles per CTA, so that tiles of 64 rows are streamed too.
    const int num_work_tiles = c.num_reqs() * c.num_kv_heads;
    c.num_workers = i % 3 == 0 ? std::max(i / 3 % 3, num_work_tiles / 8) + 1 : 8 * num_work_tiles + 1;
    ++i;
  }
  return cases;
}

class CudaInlinePlanPart : public NeedsGpu, public testing::WithParamInterface<int> {};

TEST_P(CudaInlinePlanPart, MatchesTheBitsOfASeparatePlan) {
  run_conformance(attention_planned_inline,
                  select_part(with_few_rows(on_tensor_cores(conformance::conformance_cases())), GetParam()));
}
TEST_P(CudaInlinePlanPart, MatchesTheBitsOfASeparatePlanWithoutTensorCores) {
  run_conformance(attention_planned_inline,
                  select_part(with_few_rows(conformance::conformance_cases()), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Every, CudaInlinePlanPart, testing::Range(0, kParts));

using CudaInlinePlan = NeedsGpu;

// More requests than threads per CTA: zero, one and several per thread, some without queries or keys.
TEST_F(CudaInlinePlan, SplitsTheKeysOfManyRequests) {
  std::vector<AttentionCase> cases;
  for (const int num_reqs : {1, 31, 127, 128, 129, 300, 512}) {
    AttentionCase c{.num_q_heads = 8,
                    .num_kv_heads = 2,
                    .head_dim_qk = 128,
                    .head_dim_v = 128,
                    .page_size = 16,
                    .split_rule = kernels::SplitRule::kBalanced,
                    .seed = static_cast<uint64_t>(num_reqs)};
    for (int r = 0; r < num_reqs; ++r) {
      const int seqlen_kv = r % 7 == 3 ? 0 : r * 37 % 400;
      c.requests.push_back({r % 5 == 1 ? 0 : std::min(1, seqlen_kv + 1), seqlen_kv});
    }
    cases.push_back(c);
  }
  run_conformance(attention_planned_inline, on_tensor_cores(cases));
}
TEST_F(CudaInlinePlan, SplitsTheKeysOfAnyNumberOfHeads) {
  std::vector<AttentionCase> cases;
  for (const int num_kv_heads : {3, 8, 11, 12, 20})
    for (const int seqlen_q : {1, 3, 8})
      cases.push_back({.requests = {{1, 1500}, {1, 1}, {seqlen_q, 400}, {seqlen_q, 64}, {1, 129}},
                       .num_q_heads = 2 * num_kv_heads,
                       .num_kv_heads = num_kv_heads,
                       .page_size = 16,
                       .split_rule = kernels::SplitRule::kBalanced});
  run_conformance(attention_planned_inline, on_tensor_cores(cases));
}
TEST_F(CudaInlinePlan, ServesMlaLayers) {
  std::vector<AttentionCase> cases;
  for (const int num_heads : {4, 16, 64})
    for (const auto& requests : {std::vector<Lengths>{{1, 1500}, {1, 333}, {1, 1}, {0, 70}, {1, 0}},
                                 std::vector<Lengths>{{1, 4000}}})
      cases.push_back({.requests = requests,
                       .num_q_heads = num_heads,
                       .num_kv_heads = 1,
                       .head_dim_qk = 576,
                       .head_dim_v = 512,
                       .rope_dim = 64,
                       .page_size = 64,
                       .split_rule = kernels::SplitRule::kBalanced});
  // Narrow latent rows, which have the plans of other layers.
  for (const int num_heads : {4, 16})
    cases.push_back({.requests = {{1, 1500}, {1, 333}, {1, 4000}},
                     .num_q_heads = num_heads,
                     .num_kv_heads = 1,
                     .head_dim_qk = 192,
                     .head_dim_v = 128,
                     .rope_dim = 64,
                     .page_size = 64,
                     .split_rule = kernels::SplitRule::kBalanced});
  cases = on_tensor_cores(cases);
  for (AttentionCase& c : cases) c.kv_dtype = c.q_dtype;
  for (size_t i = 0, num_cases = cases.size(); i < num_cases; i += 3) {
    cases.push_back(cases[i]);
    cases.back().kv_dtype = i % 2 == 0 ? DType::kF8E4M3 : DType::kF8E5M2;
  }
  for (size_t i = 1; i < cases.size(); i += 2) cases[i].num_pad_tokens = 3;
  run_mla_conformance(mla_planned_inline, cases);
}

}  // namespace
}  // namespace attend::testing_cuda
