// What a plan says of a batch, whoever derives it: the plan kernel, or CTAs of attention for themselves.
#pragma once

#include "attend/kernels/attention/cuda/common/visible.cuh"

namespace attend::kernels::cuda {

// Rows of a request from `row_begin` on: those of its queries `first_query` to `last_query`.
struct TileQueries {
  int row_begin, first_query, last_query;
};

// A request's row tile. Its place among others is not known yet: kv_tile_begin is 0.
__device__ inline RowTile row_tile_of(const BatchParams& batch, int request, const RequestSpan& span,
                                      const TileQueries& queries, int kv_tile_keys, int index) {
  const KeyRange keys = key_range(batch, span, queries.first_query, queries.last_query);
  const int first_kv_tile = keys.begin / kv_tile_keys;
  return {.request = request,
          .first_token = span.first_token,
          .seqlen_q = span.seqlen_q,
          .seqlen_kv = span.seqlen_kv,
          .row_begin = queries.row_begin,
          .first_query = queries.first_query,
          .kv_begin = keys.begin,
          .kv_end = keys.end,
          .first_kv_tile = first_kv_tile,
          .num_kv_tiles = max(1, (keys.end + kv_tile_keys - 1) / kv_tile_keys - first_kv_tile),
          .kv_tile_begin = 0,
          .index = index};
}

// A CTA range that ends where work tiles, which have at most `longest` KV tiles, end: what lies in one CTA
// alone needs no merge and no second prologue. The range as it was where that would make it too large.
__device__ inline int aligned_cta_range(int cta_range, int longest) {
  // A CTA may get 1 / kAlignmentSlack more.
  constexpr int kAlignmentSlack = 32;
  const int aligned = longest >= cta_range ? (longest + longest / cta_range - 1) / (longest / cta_range)
                                           : (cta_range + longest - 1) / longest * longest;
  return aligned <= cta_range + cta_range / kAlignmentSlack ? aligned : cta_range;
}

// Of a CTA range, where all row tiles have `num_kv_tiles` KV tiles and none more than `longest`.
__device__ inline int kv_tiles_per_cta_for(const PlanView& plan, int num_kv_tiles, int longest) {
  const int num_cta_ranges = plan.num_ctas / plan.heads_at_once;
  return aligned_cta_range(
      max(plan.min_kv_tiles_per_cta, (num_kv_tiles + num_cta_ranges - 1) / num_cta_ranges), max(1, longest));
}

// Where a CTA range begins that does so `kv_tile` KV tiles into a row tile, for the CTA of `head_of_cta` <
// heads_at_once.
__device__ inline CtaStart cta_start_at(const PlanView& plan, const RowTile& tile, int kv_tile,
                                        int head_of_cta) {
  const int step = kv_tile / tile.num_kv_tiles;
  return {.tile = tile,
          .head = step * plan.heads_at_once + head_of_cta,
          .first = kv_tile - step * tile.num_kv_tiles};
}

namespace sm80 {

// Partial results of a work tile from the lowest keys to the highest, as numbers of the plan's: `first`, then
// second + (n - 1) step.
struct PartialResults {
  int count;
  int first, second, step;
  __device__ int index(int partial) const { return partial == 0 ? first : second + (partial - 1) * step; }
};

template <bool kFixedSplits>
__device__ PartialResults partials_of(const PlanView& plan, const RowTile& tile, int head,
                                      int kv_tiles_per_cta) {
  if (kFixedSplits) {
    const int index = tile.kv_tile_begin * plan.heads_at_once + head * tile.num_kv_tiles;
    return {.count = tile.num_kv_tiles, .first = index, .second = index + 1, .step = 1};
  }
  const int kv_tile = tile.kv_tile_begin + head / plan.heads_at_once * tile.num_kv_tiles;
  const int first_cta_range = kv_tile / kv_tiles_per_cta,
            last_cta_range = (kv_tile + tile.num_kv_tiles - 1) / kv_tiles_per_cta;
  const int first_cta = first_cta_range * plan.heads_at_once + head % plan.heads_at_once;
  return {.count = last_cta_range - first_cta_range + 1,
          .first = 2 * first_cta + 1,
          .second = 2 * (first_cta + plan.heads_at_once),
          .step = 2 * plan.heads_at_once};
}

}  // namespace sm80

}  // namespace attend::kernels::cuda
