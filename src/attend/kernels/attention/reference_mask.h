// Mask of attention_batch.h for one query and one key.
#pragma once

#include "attend/kernels/attention/attention_batch.h"

namespace attend::kernels::reference {

// One query: token `token` of the batch, the j-th new token of request `request`.
struct Query {
  int request, j, token;
  int32_t seqlen_q, seqlen_kv;
  int32_t position;  // p in attention_batch.h: the last key if attention is not causal
};
Query make_query(const QueryBatch& batch, const AttentionMask& attention_mask, int request, int j);

// Returns true if `query` sees key `k`, 0 <= k < seqlen_kv.
bool sees(const QueryBatch& batch, const AttentionMask& attention_mask, const Query& query, int32_t k);

}  // namespace attend::kernels::reference
