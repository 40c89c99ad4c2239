// Keys that a query sees (attention_batch.h), on the device.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

// Lengths of one request.
struct RequestSpan {
  int first_token;
  int seqlen_q, seqlen_kv;
  __device__ int prefix() const { return seqlen_kv - seqlen_q; }
};

__device__ inline RequestSpan request_span(const RowTile& tile) {
  return {tile.first_token, tile.seqlen_q, tile.seqlen_kv};
}
__device__ inline RequestSpan request_span(const BatchParams& batch, int request) {
  const int first = batch.cu_seqlen_q[request];
  return {first, batch.cu_seqlen_q[request + 1] - first, batch.seqlen_kv[request]};
}

// Returns the position of query j. Kernels without tree masks set kMayHaveTree = false, which saves
// registers.
template <bool kMayHaveTree = true>
__device__ inline int query_position(const BatchParams& batch, const RequestSpan& span, int j) {
  if (!batch.causal) return span.seqlen_kv - 1;
  if (kMayHaveTree && batch.tree_mask != nullptr) return batch.positions[span.first_token + j];
  return span.prefix() + j;
}

// Keys [lo, hi] that a query at position p sees; none if hi is below lo. Under a tree mask, only keys of the
// prefix. Neither bound decreases when p increases.
struct UnmaskedRange {
  int lo, hi;
};
__device__ inline UnmaskedRange unmasked_range(const BatchParams& batch, const RequestSpan& span, int p) {
  UnmaskedRange range{0, min(p + batch.window_right, span.seqlen_kv - 1)};
  if (batch.window_left >= 0) range.lo = max(0, p - batch.window_left);
  if (batch.chunk > 0) {
    const int first = p / batch.chunk * batch.chunk;
    range.lo = max(range.lo, first);
    range.hi = p < 0 ? -1 : min(range.hi, first + batch.chunk - 1);
  }
  return range;
}

// Returns true if query j sees new token `bit` of the request under the tree mask.
__device__ inline bool sees_new_token(const BatchParams& batch, const RequestSpan& span, int j, int lo,
                                      int bit) {
  const int64_t words = int64_t{span.first_token + j} * batch.tree_mask_words;
  const uint64_t word = batch.tree_mask[words + bit / 64];
  return ((word >> (bit % 64)) & 1) != 0 && lo <= batch.positions[span.first_token + bit];
}

// Keys [begin, end) that any of the queries j_first to j_last of one request may see.
struct KeyRange {
  int begin, end;
};
__device__ inline KeyRange key_range(const BatchParams& batch, const RequestSpan& span, int j_first,
                                     int j_last) {
  if (batch.causal && batch.tree_mask != nullptr) {
    if (batch.window_left < 0 && batch.chunk == 0) return {0, span.seqlen_kv};
    int lowest = query_position(batch, span, j_first);
    for (int j = j_first + 1; j <= j_last; ++j) lowest = min(lowest, query_position(batch, span, j));
    return {min(unmasked_range(batch, span, lowest).lo, max(span.prefix(), 0)), span.seqlen_kv};
  }
  if (batch.window_left < 0 && batch.chunk == 0)
    return {0, max(0, unmasked_range(batch, span, query_position(batch, span, j_last)).hi + 1)};
  const int begin = unmasked_range(batch, span, query_position(batch, span, j_first)).lo;
  return {begin, max(begin, unmasked_range(batch, span, query_position(batch, span, j_last)).hi + 1)};
}

// Clips a row tile's keys to those of a layer, which may see fewer than the plan's: the plan may be that of a
// layer without a window.
__device__ inline void clip_to_layer(RowTile& tile, const KeyRange& keys) {
  tile.kv_begin = max(tile.kv_begin, keys.begin);
  tile.kv_end = min(tile.kv_end, keys.end);
}

// Returns the keys that each of the queries j_first to j_last sees; undefined under a tree mask.
__device__ inline KeyRange full_key_range(const BatchParams& batch, const RequestSpan& span, int j_first,
                                          int j_last) {
  if (batch.window_left < 0 && batch.chunk == 0)
    return {0, unmasked_range(batch, span, query_position(batch, span, j_first)).hi + 1};
  return {unmasked_range(batch, span, query_position(batch, span, j_last)).lo,
          unmasked_range(batch, span, query_position(batch, span, j_first)).hi + 1};
}

// A query and the range of keys that it sees.
struct QueryRange {
  int j;
  int lo, hi;
};

template <bool kMayHaveTree = true>
__device__ inline QueryRange query_range(const BatchParams& batch, const RequestSpan& span, int j) {
  const UnmaskedRange range = unmasked_range(batch, span, query_position<kMayHaveTree>(batch, span, j));
  return {j, range.lo, range.hi};
}

__device__ inline bool sees(const BatchParams& batch, const RequestSpan& span, const QueryRange& query,
                            int k) {
  if (batch.tree_mask == nullptr || !batch.causal || k < span.prefix()) return query.lo <= k && k <= query.hi;
  return k < span.seqlen_kv && sees_new_token(batch, span, query.j, query.lo, k - span.prefix());
}

}  // namespace attend::kernels::cuda
