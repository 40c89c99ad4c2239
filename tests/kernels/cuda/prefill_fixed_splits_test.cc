// Prefill on sm_90a with fixed splits: correct, and equal bit for bit to the sm80 kernel, which computes the
// decode steps of the same requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/conformance/cases/cases.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::on_tensor_cores;
using kernels::cuda::AttentionKernel;
using kernels::cuda::AttentionTuning;

class CudaPrefillFixedSplits : public NeedsHopper, public testing::WithParamInterface<int> {};

AttentionTuning tuning_of_gpu() { return kernels::cuda::attention_tuning(kernels::cuda::gpu_facts(kGpu)); }
// Tuning that assigns all rows to the sm80 kernel.
AttentionTuning without_prefill() {
  AttentionTuning tuning = tuning_of_gpu();
  tuning.prefill_min_rows = std::numeric_limits<int64_t>::max();
  return tuning;
}

void run_kernel(AttentionKernel kernel, const AttentionTuning& tuning, const kernels::AttentionArgs& args,
                const conformance::BuiltCase& built) {
  const auto is_right = [&](const kernels::AttentionArgs& on_device, const kernels::cuda::DevicePlan& plan) {
    return choose(attention_problem(on_device, plan), kernels::cuda::gpu_facts(kGpu), tuning).row.kernel ==
           kernel;
  };
  attention_on_gpu_if(
      is_right, args, built, Planning::kBefore,
      [&](const kernels::AttentionArgs& on_device, kernels::AttentionPlan& plan, Stream& stream) {
        kernels::check(on_device);
        kernels::cuda::attention(on_device, plan.device_plan(), stream, tuning);
      });
}

void prefill_matches_sm80(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  run_kernel(AttentionKernel::kSm90Prefill, tuning_of_gpu(), args, built);
  const auto prefill_results = built.result_bytes();
  run_kernel(AttentionKernel::kSm80Tiles, without_prefill(), args, built);
  ensure(built.result_bytes() == prefill_results, "other bits than those of sm80's kernel");
}

// Cases that the prefill kernel supports with fixed splits: more than 64 rows per request, and few CTAs with
// many work tiles each.
std::vector<AttentionCase> with_fixed_splits(std::vector<AttentionCase> cases) {
  constexpr int kSplitTokens[] = {64, 128, 256, 512};
  size_t i = 0;
  for (AttentionCase& c : cases) {
    const int more = 70 / (c.num_q_heads / c.num_kv_heads) + 1;
    if (c.requests.empty()) c.requests.push_back({});
    for (conformance::Lengths& lengths : c.requests) {
      lengths.seqlen_q += more;
      lengths.seqlen_kv += more + (i % 3 == 0 ? 700 : 0);
    }
    c.head_dim_qk = c.head_dim_qk <= 64 ? 128 : std::min(c.head_dim_qk, 128);
    c.head_dim_v = std::min(c.head_dim_v, 128);
    c.kv_dtype = c.q_dtype;
    c.split_rule = kernels::SplitRule::kFixed;
    c.split_tokens = kSplitTokens[i % std::size(kSplitTokens)];
    c.tree = conformance::TreeShape::kNone;
    c.num_workers =
        std::min(static_cast<int>(i % 3) + 1, static_cast<int>(c.requests.size()) * c.num_kv_heads);
    ++i;
  }
  return cases;
}

TEST_P(CudaPrefillFixedSplits, ConformsWithTheBitsOfTheSm80Kernel) {
  run_conformance(
      prefill_matches_sm80,
      select_part(with_fixed_splits(on_tensor_cores(conformance::conformance_cases())), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Every, CudaPrefillFixedSplits, testing::Range(0, kParts));

using CudaPrefillOfSplits = CudaPrefillFixedSplits;

// The maximum scores rise strongly from tile to tile. Both kernels must update a row's maximum at the same
// keys.
TEST_P(CudaPrefillOfSplits, HasTheBitsOfTheSm80KernelIfScoresRise) {
  AttentionCase c{.requests = {{100, 1500}, {300, 300}, {65, 1000}},
                  .num_q_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim_qk = 128,
                  .head_dim_v = 128,
                  .q_dtype = DType::kBF16,
                  .out_dtype = DType::kBF16,
                  .kv_dtype = DType::kBF16,
                  .page_size = GetParam(),
                  .spread = conformance::ScoreSpread::kSharp,
                  .split_rule = kernels::SplitRule::kFixed,
                  .split_tokens = 256,
                  .num_workers = 3};
  std::vector<AttentionCase> cases(5, c);
  cases[1].window_left = 100;
  cases[2].causal = false;
  cases[3].logit_cap = 50.0f;
  cases[4].out_dtype = DType::kF32;
  cases[4].split_tokens = 64;
  for (size_t i = 0; i < cases.size(); ++i) cases[i].seed = i + 1;
  run_conformance(prefill_matches_sm80, cases);
}
INSTANTIATE_TEST_SUITE_P(EachSize, CudaPrefillOfSplits, testing::Values(1, 8, 16, 64));

}  // namespace
}  // namespace attend::testing_cuda
