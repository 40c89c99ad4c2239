// Merges the partial results of MLA's work tiles in a kernel of its own, where the CTAs that left them are
// more than run at once.
//
//   tile        an end of a CTA range (mla_merge.cuh), for four CTAs
//   warps       4; of few partial results a CTA takes whole rows, of many 64 columns
//   registers   64 a thread
//   shared      3 KB, for sums over the threads that share columns
//   bytes       2 KB of a row's partial result, once
//   bound       latency
#include "attend/kernels/attention/cuda/sm90/mla_merge.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kCtasOfEnd = 4, kCtasPerSm = 5;

// CTA (c, y): of what is to be done for the end of the CTA range of MLA's CTA c.
__global__ void __launch_bounds__(kMlaMergeThreads, kCtasPerSm)
    mla_merge(const __grid_constant__ AttentionParams params) {
  using RangeEnd = MlaRangeEnd<kCtasOfEnd>;
  __shared__ RangeEnd::Exchange exchange;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const PlanView& plan = params.plan;
  const int cta = static_cast<int>(blockIdx.x);
  // Both loads at once; a tile behind the last KV tile is not looked at.
  const PlanHeader header = *plan.header;
  const CtaStart next = plan.cta_starts[cta + plan.heads_at_once];
  if ((cta / plan.heads_at_once + 1) * header.line.cta_range >= header.line_length) return;
  if (next.first == 0) return;
  const RangeEnd::Thread thread{static_cast<int>(blockIdx.y), 0, static_cast<int>(threadIdx.x)};
  RangeEnd(params, next.tile, next.head, header.line, cta, thread, exchange).merge();
}

}  // namespace

void launch_mla_merge(const AttentionParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas), kCtasOfEnd);
  launch_dependent<AttentionParams>(mla_merge, grid, kMlaMergeThreads, 0, stream, params,
                                    "merge of partial MLA");
}

}  // namespace attend::kernels::cuda::sm90
