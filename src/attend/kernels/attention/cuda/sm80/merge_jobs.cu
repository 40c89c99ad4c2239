#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/merge_parts.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm80 {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsPerCta = 8;

// CTA (c, y): rows kRowsPerCta y and on of the job that begins in CTA c of attention and ends in a later one.
template <int kHeadDimV, int kAtOnce = merge_at_once(kHeadDimV)>
__global__ void __launch_bounds__(kThreads) merge_jobs(const __grid_constant__ AttentionParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int cta = static_cast<int>(blockIdx.x);
  // Both loads at once; a tile behind the last unit is not looked at.
  const PlanHeader header = *params.plan.header;
  const auto [tile, head, num_done] = params.plan.cta_starts[cta + params.plan.heads_at_once];
  if ((cta / params.plan.heads_at_once + 1) * header.units_per_cta >= header.num_units) return;
  if (num_done == 0 || num_done > header.units_per_cta) return;
  const int first_row = static_cast<int>(blockIdx.y) * kRowsPerCta;
  const int num_rows = min(params.plan.tile_rows, tile.seqlen_q * params.group - tile.row_begin);
  merge_parts<kHeadDimV, kThreads, kAtOnce>(
      params, parts_of<false>(params.plan, tile, head, header.units_per_cta), first_row,
      min(num_rows, first_row + kRowsPerCta), [&](int tile_row) {
        const int row = tile.row_begin + tile_row;
        return OutputRow{tile.first_token + row / params.group, head * params.group + row % params.group};
      });
}

}  // namespace

void launch_merge_jobs(const AttentionParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas),
                  static_cast<unsigned>(params.plan.tile_rows / kRowsPerCta));
  const auto launch = [&](void (*kernel)(AttentionParams)) {
    launch_dependent<AttentionParams>(kernel, grid, kThreads, 0, stream, params,
                                      "merge of partial attention");
  };
  if (params.head_dim_v <= 64) return launch(merge_jobs<64>);
  if (params.head_dim_v <= 128) return launch(merge_jobs<128>);
  if (params.head_dim_v <= 256) return launch(merge_jobs<256>);
  launch(merge_jobs<512>);
}

}  // namespace attend::kernels::cuda::sm80
