#include "attend/kernels/attention/unmasked_keys.h"

#include <algorithm>

namespace attend::kernels {

UnmaskedKeys visible_keys(const QueryBatch& batch, const AttentionMask& attention_mask, int request, int j) {
  const auto r = static_cast<size_t>(request);
  const int32_t first_token = batch.cu_seqlen_q[r];
  const int32_t num_new = batch.cu_seqlen_q[r + 1] - first_token;
  const int32_t seqlen_kv = batch.seqlen_kv[r];
  const int32_t prefix = seqlen_kv - num_new;

  UnmaskedKeys keys;
  if (batch.tree_mask.empty()) {
    const int32_t p = attention_mask.causal ? prefix + j : seqlen_kv - 1;
    keys.begin = first_unmasked(attention_mask, p);
    keys.end = last_unmasked(attention_mask, p, seqlen_kv) + 1;
    return keys;
  }
  const auto token = static_cast<size_t>(first_token + j);
  const int32_t p = batch.positions[token];
  keys.begin = first_unmasked(attention_mask, p);
  keys.end = std::min(p + 1, prefix);
  keys.tree_bits = &batch.tree_mask[token * static_cast<size_t>(batch.tree_mask_words)];
  keys.tree_positions = &batch.positions[static_cast<size_t>(first_token)];
  keys.prefix = prefix;
  keys.num_new = num_new;
  return keys;
}

uint64_t unmasked_word(const UnmaskedKeys& keys, int32_t first) {
  uint64_t word = range_bits(keys.begin, keys.end, first);
  if (keys.tree_bits == nullptr) return word;
  const int32_t begin = std::max(0, first - keys.prefix);
  const int32_t end = std::min(keys.num_new, first + 64 - keys.prefix);
  for (int32_t b = begin; b < end; ++b)
    if ((keys.tree_bits[b / 64] >> (b % 64) & 1) && keys.tree_positions[b] >= keys.begin)
      word |= uint64_t{1} << (keys.prefix + b - first);
  return word;
}

}  // namespace attend::kernels
