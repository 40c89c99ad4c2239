// Rows of a work tile: new tokens of one request and the query heads of one KV head (packed GQA).
#pragma once

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda {

// A row of the tile: a new token of the request and a query head.
struct TileRow {
  int query, head;
};

// The first `num_rows` rows of a tile exist. Methods receive the kernel parameters, which are in constant
// memory.
struct WorkTileRows {
  RequestSpan span;
  int first_query, first_in_group, num_rows;
  int head;  // KV head

  // `max_rows`: rows of a tile.
  __device__ WorkTileRows(const AttentionParams& params, const RowTile& tile, int kv_head, int max_rows)
      : span(request_span(tile)),
        first_query(tile.first_query),
        first_in_group(tile.row_begin - tile.first_query * params.group),
        num_rows(min(max_rows, span.seqlen_q * params.group - tile.row_begin)),
        head(kv_head) {}

  __device__ TileRow at(const AttentionParams& params, int tile_row) const {
    const int row = first_in_group + tile_row;
    const int queries = params.group == 1
                            ? row
                            : static_cast<int>(__umulhi(static_cast<uint32_t>(row), params.group_reciprocal));
    return {first_query + queries, head * params.group + row - queries * params.group};
  }

  // Returns the offset of a row in `tokens`, in elements. Tiled kernels support only 32-bit strides.
  template <class Tokens>
  __device__ int64_t offset_in(const Tokens& tokens, const TileRow& row) const {
    const int64_t token =
        ptx::mad_wide(span.first_token + row.query, static_cast<int32_t>(tokens.token_stride), 0);
    return ptx::mad_wide(row.head, static_cast<int32_t>(tokens.head_stride), token);
  }
};

// Returns the first row in the tile of a thread's warp. `Config`: a TileConfig.
template <class Config>
__device__ int warp_row(int thread) {
  return thread / 32 / Config::kWarpsN * Config::kRowBlocks * 16;
}

// Returns a mask with bit i set if the row sees key first_key + i.
template <int kKeys>
__device__ uint64_t unmasked_keys(const AttentionParams& params, const WorkTileRows& rows, int tile_row,
                                  int first_key) {
  if (tile_row >= rows.num_rows) return 0;
  const QueryRange query = query_range(params.batch, rows.span, rows.at(params, tile_row).query);
  uint64_t visible = 0;
  if (params.batch.tree_mask != nullptr && params.batch.causal) {
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i)
      if (sees(params.batch, rows.span, query, first_key + i)) visible |= uint64_t{1} << i;
  } else {
    const int begin = max(query.lo - first_key, 0), end = min(query.hi + 1 - first_key, 64);
    if (begin < end) visible = ~uint64_t{0} >> (64 - (end - begin)) << begin;
  }
  return visible;
}

}  // namespace attend::kernels::cuda
