// Decode of a single request (sm90/decode/single_request_decode.cuh): same bits as the kernel of other
// decodes.
#include <gtest/gtest.h>

#include <array>

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "tests/kernels/conformance/run.h"
#include "tests/kernels/cuda/support/device_case.h"
#include "tests/kernels/cuda/support/late_case.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::AttentionCase;
using conformance::BuiltCase;
using kernels::KvIndexKind;

using CudaSingleRequestDecode = NeedsHopper;

// Requests around the ends of KV tiles and of the parts of a cluster's CTAs, up to `longest` keys.
std::vector<AttentionCase> single_request_decodes(int longest) {
  const std::vector<std::pair<int, int>> heads{{8, 1}, {32, 4}, {12, 4}, {64, 8}, {5, 5}};
  std::vector<AttentionCase> cases;
  for (const int seqlen_kv :
       {0,    1,    2,    63,   64,   65,   127,  200,  448,  449,  511,  512,  513, 960,
        1000, 1024, 1025, 1500, 1536, 1537, 2000, 2048, 2049, 2500, 3072, 3500, 7000}) {
    if (seqlen_kv > longest) continue;
    for (int i = 0; i < 4; ++i) {
      const size_t n = cases.size();
      AttentionCase c{.requests = {{1, seqlen_kv}},
                      .num_q_heads = heads[n % heads.size()].first,
                      .num_kv_heads = heads[n % heads.size()].second,
                      .head_dim_qk = n % 3 == 0 ? 64 : 128,
                      .index = static_cast<KvIndexKind>(i),
                      .page_order = conformance::PageOrder::kShuffled,
                      .layout = n % 7 == 2 ? KvLayout::kHeadMajor : KvLayout::kTokenMajor,
                      .slot_map = i == 0 && n / 4 % 2 == 0,
                      .strided = n % 6 == 3,
                      .k_scale = n % 6 == 1 ? 0.5f : 1.0f,
                      .v_scale = n % 6 == 2 ? 2.0f : 1.0f,
                      .causal = n % 9 != 4,
                      .window_right = n % 9 == 5 ? 3 : 0,
                      .spread = static_cast<conformance::ScoreSpread>(n % 3),
                      .lse = false,
                      .split_rule = kernels::SplitRule::kBalanced,
                      .seed = n};
      c.head_dim_v = c.head_dim_qk;
      c.page_size = c.index == KvIndexKind::kContiguous ? 1 : std::array{1, 16, 64}[n % 3];
      cases.push_back(c);
    }
  }
  // Padding only.
  cases.push_back(cases.front());
  cases.back().requests = {{0, 70}};
  cases.back().num_pad_tokens = 1;
  for (AttentionCase& c : cases)
    c.q_dtype = c.kv_dtype = c.out_dtype = (c.seed + c.seed / 4) % 2 == 0 ? DType::kBF16 : DType::kF16;
  return cases;
}

using kernels::cuda::AttentionKernel;

// Returns true if `kernel` is chosen for arguments on the device.
template <AttentionKernel kernel>
bool runs(const kernels::AttentionArgs& args, const kernels::cuda::DevicePlan& plan) {
  return plan.view().single_cluster_per_tile &&
         choose(attention_problem(args, plan), kernels::cuda::gpu_facts(kGpu)).row.kernel == kernel;
}
const auto runs_single_request_decode = runs<AttentionKernel::kSm90SingleRequestDecode>;

// This kernel runs first, so that results that it does not write are still poisoned. A requested LSE selects
// the other kernel.
void run_both_kernels(const kernels::AttentionArgs& args, const BuiltCase& built) {
  const Planning planning = built.spec.seed % 2 == 0 ? Planning::kBefore : Planning::kInline;
  attention_on_gpu_if(runs_single_request_decode, args, built, planning);
  const auto bits = built.result_bytes();
  Tensor lse = Tensor::empty({args.q.shape[0], args.q.shape[1]}, DType::kF32);
  kernels::AttentionArgs with_lse = args;
  with_lse.lse = lse.view();
  attention_on_gpu_if(runs<AttentionKernel::kSm80Tiles>, with_lse, built, planning);
  ensure(built.result_bytes() == bits, "other bits than those of the kernel of other decodes");
}

// Longer requests may be divided among clusters by the other kernel.
TEST_F(CudaSingleRequestDecode, MatchesTiledDecodeBitForBit) {
  run_conformance(run_both_kernels, single_request_decodes(3072));
}
TEST_F(CudaSingleRequestDecode, AcceptsRequestsLongerThanPlanned) {
  run_conformance([](const auto& args,
                     const auto& built) { attention_on_gpu_if(runs_single_request_decode, args, built); },
                  single_request_decodes(7000));
}
TEST_F(CudaSingleRequestDecode, MayStartBeforeItsNewKeyIsWritten) {
  run_conformance(attention_after_late_keys, single_request_decodes(7000));
}

}  // namespace
}  // namespace attend::testing_cuda
