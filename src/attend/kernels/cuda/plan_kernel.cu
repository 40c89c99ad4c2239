#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/plan_kernel.h"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/visible.cuh"
#include "attend/kernels/length_of.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
// A CTA may get 1 / kAlignmentSlack more than its share.
constexpr int kAlignmentSlack = 32;

// The sum of `value` over the threads before this one; `total` receives the sum over all.
__device__ int exclusive_sum(int value, int& total) {
  __shared__ int warp_sums[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int inclusive = value;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    int sum = warp_sums[lane];
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    warp_sums[lane] = sum;
  }
  __syncthreads();
  total = warp_sums[kWarps - 1];
  return inclusive - value + (warp == 0 ? 0 : warp_sums[warp - 1]);
}

__device__ RowTile make_row_tile(const PlanParams& params, int tile_idx) {
  const BatchParams& batch = params.batch;
  // Requests without tiles are passed over.
  const int request = last_begun(params.first_row_tile, params.batch.num_reqs, tile_idx);
  const RequestSpan span = request_span(batch, request);
  // The last tiles of a request come first: they see the most keys.
  const int row_begin = (params.first_row_tile[request + 1] - 1 - tile_idx) * params.tile_rows;
  const int row_last = min(span.seqlen_q * params.group, row_begin + params.tile_rows) - 1;
  const int j_first = row_begin / params.group, j_last = row_last / params.group;
  const KeyRange keys = key_range(batch, span, j_first, j_last);
  const int first_unit = keys.begin / params.unit_keys;
  return {.request = request,
          .first_token = span.first_token,
          .seqlen_q = span.seqlen_q,
          .seqlen_kv = span.seqlen_kv,
          .row_begin = row_begin,
          .first_query = j_first,
          .kv_begin = keys.begin,
          .kv_end = keys.end,
          .first_unit = first_unit,
          .num_units = max(1, (keys.end + params.unit_keys - 1) / params.unit_keys - first_unit),
          .unit_begin = 0,
          .index = tile_idx};
}

// A share where jobs, which have at most `longest` units, end where shares end: what lies in one CTA alone
// needs no merge and no second start. The share itself where that would make it too large.
__device__ int aligned_share(int share, int longest) {
  const int aligned = longest >= share ? (longest + longest / share - 1) / (longest / share)
                                       : (share + longest - 1) / longest * longest;
  return aligned <= share + share / kAlignmentSlack ? aligned : share;
}

__global__ void __launch_bounds__(kThreads) plan_kernel(const __grid_constant__ PlanParams params) {
  ptx::wait_for_previous_kernel();
  int num_row_tiles = 0;
  for (int first = 0; first < params.batch.num_reqs; first += kThreads) {
    const int request = first + static_cast<int>(threadIdx.x);
    int num_tiles = 0;
    if (request < params.batch.num_reqs) {
      const int num_rows =
          (params.batch.cu_seqlen_q[request + 1] - params.batch.cu_seqlen_q[request]) * params.group;
      num_tiles = (num_rows + params.tile_rows - 1) / params.tile_rows;
    }
    int total;
    const int before = exclusive_sum(num_tiles, total);
    if (request < params.batch.num_reqs) params.first_row_tile[request] = num_row_tiles + before;
    num_row_tiles += total;
  }
  if (threadIdx.x == 0) params.first_row_tile[params.batch.num_reqs] = num_row_tiles;
  __syncthreads();

  const int heads_of_cta = params.num_kv_heads / params.heads_at_once;
  int num_units = 0;
  __shared__ int longest;
  if (threadIdx.x == 0) longest = 1;
  for (int first = 0; first < num_row_tiles; first += kThreads) {
    const int tile_idx = first + static_cast<int>(threadIdx.x);
    RowTile tile{};
    if (tile_idx < num_row_tiles) tile = make_row_tile(params, tile_idx);
    int total;
    const int before = exclusive_sum(tile.num_units * heads_of_cta, total);
    tile.unit_begin = num_units + before;
    atomicMax(&longest, tile.num_units);
    if (tile_idx < num_row_tiles) params.row_tiles[tile_idx] = tile;
    num_units += total;
  }
  __syncthreads();
  const int num_shares = params.num_ctas / params.heads_at_once;
  const int units_per_cta =
      aligned_share(max(params.min_units_per_cta, (num_units + num_shares - 1) / num_shares), longest);
  if (threadIdx.x == 0)
    *params.header = {.num_row_tiles = num_row_tiles,
                      .num_units = num_units,
                      .units_per_cta = units_per_cta,
                      .num_tokens = params.batch.cu_seqlen_q[params.batch.num_reqs]};
  if (!params.streamed) return;
  __syncthreads();

  // A warp per row tile: one long request alone has units for every CTA. Its lanes take shares and, of each,
  // the heads at once; no division tells them which, as their number is rounded up to a power of two.
  const int heads_shift = 32 - __clz(params.heads_at_once - 1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int share_of_lane = lane >> heads_shift, head_of_lane = lane & ((1 << heads_shift) - 1);
  for (int tile_idx = threadIdx.x / 32; tile_idx < num_row_tiles; tile_idx += kWarps) {
    const RowTile tile = params.row_tiles[tile_idx];
    const int unit_end = tile.unit_begin + tile.num_units * heads_of_cta;
    int share = (tile.unit_begin + units_per_cta - 1) / units_per_cta + share_of_lane;
    for (; share * units_per_cta < unit_end; share += 32 >> heads_shift) {
      if (head_of_lane >= params.heads_at_once) continue;
      const int unit = share * units_per_cta - tile.unit_begin, step = unit / tile.num_units;
      params.cta_starts[share * params.heads_at_once + head_of_lane] = {
          .tile = tile,
          .head = step * params.heads_at_once + head_of_lane,
          .first = unit - step * tile.num_units};
    }
  }
}

}  // namespace

void launch_plan(const PlanParams& params, void* stream) {
  launch_dependent<PlanParams>(plan_kernel, 1, kThreads, 0, stream, params, "plan kernel");
}

}  // namespace attend::kernels::cuda
