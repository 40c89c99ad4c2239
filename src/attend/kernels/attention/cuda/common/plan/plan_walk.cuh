// Iteration of a CTA over its work in a plan.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/cta_plan.cuh"

namespace attend::kernels::cuda {

// KV tiles of a work tile that are computed together, or skipped. `partial_idx`: partial result, that of the
// first split if splits are fixed; -1: the result is final.
struct KvTileRange {
  int first, count, partial_idx;
  bool computed;
};

// Returns `count` KV tiles from `first` of the work tile of a row tile and head: the remaining part of the
// work tile in the CTA range of the plan's CTA `cta`.
template <bool kFixedSplits>
__device__ KvTileRange range_at(const PlanView& plan, int cta, const RowTile& tile, int head, int first,
                                int count) {
  const bool whole = count == tile.num_kv_tiles;
  if (!kFixedSplits && !whole) return {first, count, first > 0 ? 2 * cta : 2 * cta + 1, true};
  // Uses partial results if there are enough: they are written without waiting, whereas saved accumulators
  // are read back.
  const bool has_partials = kFixedSplits && plan.streamed &&
                            plan.header->num_partition_units * plan.heads_per_round <= plan.num_partials;
  if (has_partials && tile.num_kv_tiles > 1)
    return {first, count, tile.partition_offset * plan.heads_per_round + head * tile.num_kv_tiles + first,
            true};
  if (whole) return {0, count, -1, true};
  return {first, tile.num_kv_tiles - first, -1, first == 0};
}

// Returns the next row tile of a whole plan, which `num_ctas` CTAs process in rounds. Row tiles of a request
// are in descending order of keys, so every other round runs backward: the CTA with the longest tile of one
// round gets the shortest of the next. Without fixed splits there is one round.
template <bool kFixedSplits>
__device__ int next_row_tile(int row_tile, int num_ctas) {
  if (!kFixedSplits) return row_tile + num_ctas;
  return 2 * (row_tile / num_ctas + 1) * num_ctas - 1 - row_tile;
}

// Calls compute(tile, head, range) for every range of KV tiles that the plan's CTA `cta` computes.
// `cta_plan`: its CtaPlan. The header is read again at later uses, so that it does not occupy registers in
// between. Fixed splits have no gaps.
template <bool kFixedSplits, class Plan, class Compute>
__device__ void walk_plan(const AttentionParams& params, const Plan& cta_plan, int cta,
                          const PlanStart& start, const Compute& compute) {
  const PlanView& plan = params.plan;
  RowTile tile = start.cta.tile;
  int head = start.cta.head, first = start.cta.first;
  // Partition units to the end of the CTA range; in whole plans, KV tiles of this row tile.
  int left;
  if (plan.streamed)
    left = start.cta.length;
  else
    left = cta < start.header.num_row_tiles ? tile.num_kv_tiles : 0;
  while (left > 0) {
    const KvTileRange range =
        range_at<kFixedSplits>(plan, cta, tile, head, first, min(tile.num_kv_tiles - first, left));
    if (range.computed) compute(tile, head, range);
    left -= range.count;
    if (!kFixedSplits && plan.streamed) left -= cta_plan.partition().gap;
    if (left > 0) {
      first = 0;
      head += plan.heads_per_round;
      if (head >= params.num_kv_heads) {
        tile = cta_plan.tile_after(tile);
        head -= params.num_kv_heads;
      }
    } else {
      const int next = next_row_tile<kFixedSplits>(tile.index, static_cast<int>(gridDim.x));
      if (plan.streamed || next >= plan.header->num_row_tiles) return;
      tile = plan.row_tiles[next];
      left = tile.num_kv_tiles;
    }
    __syncthreads();
  }
}

}  // namespace attend::kernels::cuda
