#include "attend/kernels/attention/cuda/common/plan_kernel.h"
#include "attend/kernels/attention/cuda/common/plan_rules.cuh"
#include "attend/kernels/common/cuda/cta_sum.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/metadata/lengths.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

__device__ RowTile make_row_tile(const PlanParams& params, int tile_idx) {
  // Requests without tiles are passed over.
  const int request = last_begun(params.first_row_tile, params.batch.num_reqs, tile_idx);
  const RequestSpan span = request_span(params.batch, request);
  // The last tiles of a request come first: they see the most keys.
  const int row_begin = (params.first_row_tile[request + 1] - 1 - tile_idx) * params.plan.tile_rows;
  const int row_last = min(span.seqlen_q * params.group, row_begin + params.plan.tile_rows) - 1;
  return row_tile_of(params.batch, request, span, row_begin, row_begin / params.group,
                     row_last / params.group, params.plan.unit_keys, tile_idx);
}

__global__ void __launch_bounds__(kThreads) plan_kernel(const __grid_constant__ PlanParams params) {
  ptx::griddepcontrol_wait();
  const PlanView& plan = params.plan;
  int num_row_tiles = 0;
  for (int first = 0; first < params.batch.num_reqs; first += kThreads) {
    const int request = first + static_cast<int>(threadIdx.x);
    int num_tiles = 0;
    if (request < params.batch.num_reqs) {
      const int num_rows =
          (params.batch.cu_seqlen_q[request + 1] - params.batch.cu_seqlen_q[request]) * params.group;
      num_tiles = (num_rows + plan.tile_rows - 1) / plan.tile_rows;
    }
    const CtaSum sum = cta_sum<kThreads>(num_tiles, 0);
    if (request < params.batch.num_reqs) params.first_row_tile[request] = num_row_tiles + sum.before;
    num_row_tiles += sum.total;
  }
  if (threadIdx.x == 0) params.first_row_tile[params.batch.num_reqs] = num_row_tiles;
  __syncthreads();

  const int heads_of_cta = params.num_kv_heads / plan.heads_at_once;
  int num_units = 0, longest = 0;
  for (int first = 0; first < num_row_tiles; first += kThreads) {
    const int tile_idx = first + static_cast<int>(threadIdx.x);
    RowTile tile{};
    if (tile_idx < num_row_tiles) tile = make_row_tile(params, tile_idx);
    const CtaSum sum = cta_sum<kThreads>(tile.num_units * heads_of_cta, tile.num_units);
    tile.unit_begin = num_units + sum.before;
    if (tile_idx < num_row_tiles) plan.row_tiles[tile_idx] = tile;
    num_units += sum.total;
    longest = max(longest, sum.largest);
  }
  const int units_per_cta = units_per_cta_for(plan, num_units, longest);
  if (threadIdx.x == 0)
    *plan.header = {.num_row_tiles = num_row_tiles,
                    .num_units = num_units,
                    .units_per_cta = units_per_cta,
                    .num_tokens = params.batch.cu_seqlen_q[params.batch.num_reqs]};
  if (!plan.streamed) return;
  __syncthreads();

  // A warp per row tile: one long request alone has units for every CTA. Its lanes take shares and, of each,
  // the heads at once; no division tells them which, as their number is rounded up to a power of two.
  const int heads_shift = 32 - __clz(plan.heads_at_once - 1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int share_of_lane = lane >> heads_shift, head_of_lane = lane & ((1 << heads_shift) - 1);
  for (int tile_idx = threadIdx.x / 32; tile_idx < num_row_tiles; tile_idx += kWarps) {
    const RowTile tile = plan.row_tiles[tile_idx];
    const int unit_end = tile.unit_begin + tile.num_units * heads_of_cta;
    int share = (tile.unit_begin + units_per_cta - 1) / units_per_cta + share_of_lane;
    for (; share * units_per_cta < unit_end; share += 32 >> heads_shift) {
      if (head_of_lane >= plan.heads_at_once) continue;
      plan.cta_starts[share * plan.heads_at_once + head_of_lane] =
          cta_start_at(plan, tile, share * units_per_cta - tile.unit_begin, head_of_lane);
    }
  }
}

}  // namespace

void launch_plan(const PlanParams& params, void* stream) {
  launch_dependent<PlanParams>(plan_kernel, 1, kThreads, 0, stream, params, "plan kernel");
}

}  // namespace attend::kernels::cuda
