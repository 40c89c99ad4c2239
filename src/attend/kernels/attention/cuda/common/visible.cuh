// Which keys a query sees (attention_batch.h), on the device.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

// The lengths of one request.
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

// p of query j.
__device__ inline int position_of(const BatchParams& batch, const RequestSpan& span, int j) {
  if (!batch.causal) return span.seqlen_kv - 1;
  if (batch.tree_mask != nullptr) return batch.positions[span.first_token + j];
  return span.prefix() + j;
}

// Never falls when p rises.
__device__ inline int first_visible(const BatchParams& batch, int p) {
  int lo = 0;
  if (batch.window_left >= 0) lo = max(lo, p - batch.window_left);
  if (batch.chunk > 0) lo = max(lo, p / batch.chunk * batch.chunk);
  return lo;
}

// Whether new token `bit` of the request is visible to query j under the tree mask.
__device__ inline bool sees_new_token(const BatchParams& batch, const RequestSpan& span, int j, int lo,
                                      int bit) {
  const int64_t words = int64_t{span.first_token + j} * batch.tree_mask_words;
  const uint64_t word = batch.tree_mask[words + bit / 64];
  return ((word >> (bit % 64)) & 1) != 0 && lo <= batch.positions[span.first_token + bit];
}

// The keys [begin, end) that any of the queries j_first to j_last may see, both of one request.
struct KeyRange {
  int begin, end;
};
__device__ inline KeyRange key_range(const BatchParams& batch, const RequestSpan& span, int j_first,
                                     int j_last) {
  if (batch.causal && batch.tree_mask != nullptr) {
    if (batch.window_left < 0 && batch.chunk == 0) return {0, span.seqlen_kv};
    int lowest = position_of(batch, span, j_first);
    for (int j = j_first + 1; j <= j_last; ++j) lowest = min(lowest, position_of(batch, span, j));
    return {min(first_visible(batch, lowest), max(span.prefix(), 0)), span.seqlen_kv};
  }
  const int begin = first_visible(batch, position_of(batch, span, j_first));
  return {begin, max(begin, min(position_of(batch, span, j_last), span.seqlen_kv - 1) + 1)};
}

// One query: the keys [lo, hi] that it sees, or of the prefix only under a tree mask.
struct QueryRange {
  int j;
  int lo, hi;
};

__device__ inline QueryRange query_range(const BatchParams& batch, const RequestSpan& span, int j) {
  const int p = position_of(batch, span, j);
  return {j, first_visible(batch, p), min(p, span.seqlen_kv - 1)};
}

__device__ inline bool sees(const BatchParams& batch, const RequestSpan& span, const QueryRange& query,
                            int k) {
  if (batch.tree_mask == nullptr || !batch.causal || k < span.prefix()) return query.lo <= k && k <= query.hi;
  return k < span.seqlen_kv && sees_new_token(batch, span, query.j, query.lo, k - span.prefix());
}

}  // namespace attend::kernels::cuda
