// Rules of a plan, shared by the plan kernel and by CTAs of attention that derive their own plan.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"

namespace attend::kernels::cuda {

// Rows of a request from `row_begin`, which belong to queries `first_query` to `last_query`.
struct TileQueries {
  int row_begin, first_query, last_query;
};

// Returns a row tile of a request. Its position in the partition is not available yet: partition_offset is 0.
__device__ inline RowTile find_row_tile(const BatchParams& batch, int request, const RequestSpan& span,
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
          .partition_offset = 0,
          .index = index};
}

// Returns the start of a CTA range that starts in this row tile or in the gap before it, for the CTA of
// `head_in_cta` < heads_per_round.
__device__ inline CtaStart cta_start_at(const PlanView& plan, const PlanHeader& header, const RowTile& tile,
                                        int cta_range, int head_in_cta) {
  const CtaRangeStart start = range_start(header.partition, header.num_partition_units,
                                          {tile.partition_offset, tile.num_kv_tiles}, cta_range);
  return {.tile = tile,
          .head = start.work_tile * plan.heads_per_round + head_in_cta,
          .first = start.kv_tile,
          .length = start.length};
}

// Partial results of a work tile from the lowest keys to the highest, as indices in the plan: `first`, then
// second + (n - 1) step.
struct PartialResults {
  int count;
  int first, second, step;
  __device__ int index(int partial) const { return partial == 0 ? first : second + (partial - 1) * step; }
};

template <bool kFixedSplits>
__device__ PartialResults find_partial_results(const PlanView& plan, const RowTile& tile, int head,
                                               const KvPartition& partition) {
  if (kFixedSplits) {
    const int index = tile.partition_offset * plan.heads_per_round + head * tile.num_kv_tiles;
    return {.count = tile.num_kv_tiles, .first = index, .second = index + 1, .step = 1};
  }
  const int begin = tile.partition_offset + head / plan.heads_per_round * (tile.num_kv_tiles + partition.gap);
  const CtaRangeSpan parts = cta_ranges_of_tile(partition, begin, tile.num_kv_tiles);
  const int first_cta = parts.first_cta_range * plan.heads_per_round + head % plan.heads_per_round;
  return {.count = parts.count,
          .first = 2 * first_cta + 1,
          .second = 2 * (first_cta + plan.heads_per_round),
          .step = 2 * plan.heads_per_round};
}

}  // namespace attend::kernels::cuda
