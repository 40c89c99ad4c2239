#include "attend/kernels/attention/reference_mask.h"

namespace attend::kernels::reference {

Query make_query(const QueryBatch& batch, const AttentionMask& attention_mask, int request, int j) {
  const auto r = static_cast<size_t>(request);
  Query query{.request = request,
              .j = j,
              .token = batch.cu_seqlen_q[r] + j,
              .seqlen_q = batch.cu_seqlen_q[r + 1] - batch.cu_seqlen_q[r],
              .seqlen_kv = batch.seqlen_kv[r],
              .position = 0};
  if (!attention_mask.causal)
    query.position = query.seqlen_kv - 1;
  else if (!batch.tree_mask.empty())
    query.position = batch.positions[static_cast<size_t>(query.token)];
  else
    query.position = query.seqlen_kv - query.seqlen_q + j;
  return query;
}

bool sees(const QueryBatch& batch, const AttentionMask& attention_mask, const Query& query, int32_t k) {
  const int32_t lo = first_unmasked(attention_mask, query.position);
  const int32_t prefix = query.seqlen_kv - query.seqlen_q;
  const bool new_token = k >= prefix;
  if (batch.tree_mask.empty())
    return lo <= k && k <= last_unmasked(attention_mask, query.position, query.seqlen_kv);
  if (!new_token) return lo <= k && k <= query.position;
  const int32_t bit = k - prefix;
  const int32_t position = batch.positions[static_cast<size_t>(query.token - query.j + bit)];
  const uint64_t word =
      batch.tree_mask[static_cast<size_t>(query.token) * static_cast<size_t>(batch.tree_mask_words) +
                      static_cast<size_t>(bit / 64)];
  return ((word >> (bit % 64)) & 1) != 0 && lo <= position;
}

}  // namespace attend::kernels::reference
