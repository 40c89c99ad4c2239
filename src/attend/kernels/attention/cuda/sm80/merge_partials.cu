// Merges the partial results of a streamed plan for work tiles of many rows.
//
//   tile        8 rows of a work tile per CTA, 16 lanes per row
//   warps       4, all alike
//   registers   118 (head dim of V 64), 172 (128), 193 (256), 219 (512): loads in flight
//   shared      none
//   bytes       per row: 4 head_dim_v + 8 for each partial result, mostly from L2
//   bound       latency of the loads
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/merge_partials.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm80 {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsPerCta = 8;

// CTA (c, y) merges rows from kRowsPerCta y of the work tile that starts in CTA c of attention and ends in a
// later one.
template <int kHeadDimV, int kAtOnce = merge_at_once(kHeadDimV)>
__global__ void __launch_bounds__(kThreads)
    merge_partials_kernel(const __grid_constant__ AttentionParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int cta = static_cast<int>(blockIdx.x);
  // Issues both loads together. Tiles past the last KV tile are skipped.
  const PlanHeader header = *params.plan.header;
  const auto [tile, head, num_done, length] = params.plan.cta_starts[cta + params.plan.heads_per_round];
  if ((cta / params.plan.heads_per_round + 1) * header.partition.cta_range >= header.num_partition_units)
    return;
  if (num_done == 0 || num_done > header.partition.cta_range) return;
  const int first_row = static_cast<int>(blockIdx.y) * kRowsPerCta;
  const int num_rows = min(params.plan.tile_rows, tile.seqlen_q * params.group - tile.row_begin);
  merge_partials<kHeadDimV, kThreads, kAtOnce>(
      params, find_partial_results<false>(params.plan, tile, head, header.partition), first_row,
      min(num_rows, first_row + kRowsPerCta), [&](int tile_row) {
        const int row = tile.row_begin + tile_row;
        return OutputRow{tile.first_token + row / params.group, head * params.group + row % params.group};
      });
}

}  // namespace

void launch_merge_partials(const AttentionParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas),
                  static_cast<unsigned>(params.plan.tile_rows / kRowsPerCta));
  const auto launch = [&](void (*kernel)(AttentionParams)) {
    launch_dependent<AttentionParams>(kernel, grid, kThreads, 0, stream, params,
                                      "merge of partial attention");
  };
  if (params.head_dim_v <= 64) return launch(merge_partials_kernel<64>);
  if (params.head_dim_v <= 128) return launch(merge_partials_kernel<128>);
  if (params.head_dim_v <= 256) return launch(merge_partials_kernel<256>);
  launch(merge_partials_kernel<512>);
}

}  // namespace attend::kernels::cuda::sm80
