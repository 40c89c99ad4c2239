// Which tokens and query heads the rows of a tile are.
#pragma once

#include "attend/kernels/cuda/visible.cuh"

namespace attend::kernels::cuda::sm80 {

// A new token of the request and a query head.
struct TileRow {
  int query, head;
};

// The rows of a row tile for one KV head: query head g of the head's group of new token j is row j * group +
// g of the request.
class TileRows {
 public:
  __device__ TileRows(const AttentionParams& params, const RowTile& tile, int kv_head, int max_rows)
      : params_(params),
        span_(request_span(tile)),
        first_query_(tile.first_query),
        first_in_group_(tile.row_begin - tile.first_query * params.group),
        count_(min(max_rows, span_.seqlen_q * params.group - tile.row_begin)),
        first_head_(kv_head * params.group) {}

  __device__ const RequestSpan& span() const { return span_; }
  __device__ int count() const { return count_; }
  __device__ int first_query() const { return first_query_; }
  __device__ int last_query() const { return at(count_ - 1).query; }

  __device__ TileRow at(int tile_row) const {
    const int row = first_in_group_ + tile_row;
    const int queries =
        params_.group == 1 ? row
                           : static_cast<int>(__umulhi(static_cast<uint32_t>(row), params_.group_reciprocal));
    return {first_query_ + queries, first_head_ + row - queries * params_.group};
  }

 private:
  const AttentionParams& params_;
  RequestSpan span_;
  int first_query_, first_in_group_, count_, first_head_;
};

}  // namespace attend::kernels::cuda::sm80
