// Derives a step's plan: row tiles of the requests, their KV tiles, and the start of each CTA of a streamed
// plan.
//
//   tile        the whole batch, in one CTA
//   warps       32: one thread per request, then one thread per row tile, then one warp per row tile
//   registers   32
//   shared      256 bytes for sums over the CTA
//   bytes       12 per request read, 48 per row tile and 64 per CTA written
//   bound       latency
#include "attend/kernels/attention/cuda/common/plan/plan_kernel.h"
#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/common/cuda/cta_sum.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/metadata/lengths.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

__device__ RowTile make_row_tile(const PlanParams& params, int tile_idx) {
  // Skips requests without tiles.
  const int request = last_begin(params.first_row_tile, params.batch.num_reqs, tile_idx);
  const RequestSpan span = request_span(params.batch, request);
  // The last tiles of a request are first: they see the most keys.
  const int row_begin = (params.first_row_tile[request + 1] - 1 - tile_idx) * params.plan.tile_rows;
  const int row_last = min(span.seqlen_q * params.group, row_begin + params.plan.tile_rows) - 1;
  const TileQueries queries = {row_begin, row_begin / params.group, row_last / params.group};
  return find_row_tile(params.batch, request, span, queries, params.plan.kv_tile_keys, tile_idx);
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
    const auto sum = cta_sum<kThreads>(num_tiles, 0);
    if (request < params.batch.num_reqs) params.first_row_tile[request] = num_row_tiles + sum.before;
    num_row_tiles += sum.total;
  }
  if (threadIdx.x == 0) params.first_row_tile[params.batch.num_reqs] = num_row_tiles;
  __syncthreads();

  const int heads_per_cta = params.num_kv_heads / plan.heads_per_round;
  PartitionWork work{.num_kv_tiles = 0, .num_work_tiles = num_row_tiles * heads_per_cta, .longest = 0};
  for (int first = 0; first < num_row_tiles; first += kThreads) {
    const int tile_idx = first + static_cast<int>(threadIdx.x);
    RowTile tile{};
    if (tile_idx < num_row_tiles) tile = make_row_tile(params, tile_idx);
    const auto sum = cta_sum<kThreads>(tile.num_kv_tiles * heads_per_cta, tile.num_kv_tiles);
    tile.partition_offset = work.num_kv_tiles + sum.before;
    if (tile_idx < num_row_tiles) plan.row_tiles[tile_idx] = tile;
    work.num_kv_tiles += sum.total;
    work.longest = max(work.longest, sum.largest);
  }
  const KvPartition partition = partition_kv_tiles(plan.partition, work);
  const PlanHeader header{.num_row_tiles = num_row_tiles,
                          .num_partition_units = num_partition_units(work, partition),
                          .partition = partition,
                          .num_tokens = params.batch.cu_seqlen_q[params.batch.num_reqs]};
  if (threadIdx.x == 0) *plan.header = header;
  if (!plan.streamed) return;
  // Adds the gaps before a row tile, which its thread could not compute earlier.
  if (partition.gap > 0)
    for (int tile_idx = static_cast<int>(threadIdx.x); tile_idx < num_row_tiles; tile_idx += kThreads)
      plan.row_tiles[tile_idx].partition_offset += tile_idx * heads_per_cta * partition.gap;
  __syncthreads();

  // One warp per row tile: a single long request has KV tiles for every CTA. Lanes process CTA ranges and
  // their heads in parallel. The number of heads is rounded up to a power of two to avoid divisions.
  const int heads_shift = 32 - __clz(plan.heads_per_round - 1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int lane_cta_range = lane >> heads_shift, lane_head = lane & ((1 << heads_shift) - 1);
  for (int tile_idx = threadIdx.x / 32; tile_idx < num_row_tiles; tile_idx += kWarps) {
    const RowTile tile = plan.row_tiles[tile_idx];
    // A gap belongs to the following work tile.
    const int begin = max(0, tile.partition_offset - partition.gap),
              end =
                  tile.partition_offset + (tile.num_kv_tiles + partition.gap) * heads_per_cta - partition.gap;
    int cta_range = (begin + partition.cta_range - 1) / partition.cta_range + lane_cta_range;
    for (; cta_range * partition.cta_range < end; cta_range += 32 >> heads_shift) {
      if (lane_head >= plan.heads_per_round) continue;
      plan.cta_starts[cta_range * plan.heads_per_round + lane_head] =
          cta_start_at(plan, header, tile, cta_range, lane_head);
    }
  }
}

}  // namespace

void launch_plan(const PlanParams& params, void* stream) {
  launch_dependent<PlanParams>(plan_kernel, 1, kThreads, 0, stream, params, "plan kernel");
}

}  // namespace attend::kernels::cuda
