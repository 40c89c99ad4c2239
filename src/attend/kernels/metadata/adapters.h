// What backends with other contracts than attend's kernels are handed: virtual batches, Triton's split
// counts, tree masks of other layouts. Pure functions of host arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Chunked local attention as virtual batches (how SGLang and vLLM run Llama 4's iRoPE layers): each virtual
// request is the part of a request's new tokens that lies in one chunk, and the keys of that chunk up to its
// last token. Requests without new tokens have none. Adapter for kernels without a chunk rule; ours have one.
struct VirtualBatches {
  std::vector<int32_t> seqlen_q;     // [num_virtual]
  std::vector<int32_t> cu_seqlen_q;  // [num_virtual + 1]
  std::vector<int32_t> seqlen_kv;    // [num_virtual]
  std::vector<int32_t> kv_start;     // [num_virtual] first position
  std::vector<int32_t> page_table;   // [num_virtual, pages_per_chunk]; page 0 beyond the request's own row
  int pages_per_chunk = 0;
};
// `chunk` is a multiple of page_size. It is the model's: a shorter chunk would hide keys, whatever the
// lengths. page_table: [num_reqs, page_table_width].
VirtualBatches local_attention_batches(int chunk, int page_size, View<const int32_t> cu_seqlen_q,
                                       View<const int32_t> seqlen_kv, View<const int32_t> page_table,
                                       int page_table_width);

// No batch has more virtual requests: each request has one more than the chunk borders inside its new tokens,
// and none is without a token. Sizes static arrays.
int max_virtual_batches(int num_reqs, int num_tokens, int chunk);

// Splits per request as Triton's decode kernel counts them: depends on the whole batch, so not
// batch-invariant. [num_reqs] Lengths are at least 1, as those of pad requests.
std::vector<int32_t> num_kv_splits(View<const int32_t> seqlen_kv, int num_q_heads, int num_kv_heads,
                                   int max_splits, int num_sms);

// Tree masks of other layouts into words (attention_batch.h). Requests follow one another; in bytes, non-zero
// is visible.
//   kFullMask   seqlen_q rows of seqlen_kv bytes (prefix columns first)
//   kQlenOnly   seqlen_q rows of seqlen_q bytes
//   kBitPacked  the bits of seqlen_q rows of seqlen_q, low bit first; each request starts at a new byte
//
// words: [num_tokens or more, tree_mask_words]; words that no token has a bit in become 0. Throws
// Error(kInvalidArgument) when a size does not fit the lengths, and Error(kUnsupported) when a full mask
// hides a key of the prefix, which words can not say.
enum class TreeMaskLayout : uint8_t { kFullMask, kQlenOnly, kBitPacked };
void pack_tree_mask(TreeMaskLayout layout, View<const uint8_t> mask, View<const int32_t> cu_seqlen_q,
                    View<const int32_t> seqlen_kv, int tree_mask_words, View<uint64_t> words);

// The tree half of a cascade for kernels without a tree mask (how SGLang runs FlashAttention with several
// branches): every new token becomes a request of one query that attends without a causal mask to the new
// tokens it sees; the caller merges that with attention to the prefix by LSE.
struct TreeRequests {
  std::vector<int32_t> seqlen_kv;  // [num_tokens]: new tokens that the token sees
  std::vector<int32_t> slots;  // [num_tokens, width]: their slots, in order; then those of the unseen ones
  int width = 0;               // the largest seqlen_q
};
// slots: [num_tokens] of the new tokens. tree_mask: [num_tokens, tree_mask_words].
TreeRequests expand_tree_requests(View<const uint64_t> tree_mask, int tree_mask_words,
                                  View<const int32_t> cu_seqlen_q, View<const int32_t> slots);

}  // namespace attend::kernels
#pragma GCC visibility pop
