// Metadata for backends with other contracts than attend's kernels: virtual batches, Triton's split counts,
// tree masks of other layouts. Pure functions of host arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Chunked local attention as virtual batches (used by SGLang and vLLM for Llama 4's iRoPE layers). Each
// virtual request is the part of a request's new tokens in one chunk, with the keys of that chunk up to its
// last token. Requests without new tokens have none. Adapter for kernels without chunked attention; attend's
// kernels support it directly.
struct VirtualBatches {
  std::vector<int32_t> seqlen_q;     // [num_virtual]
  std::vector<int32_t> cu_seqlen_q;  // [num_virtual + 1]
  std::vector<int32_t> seqlen_kv;    // [num_virtual]
  std::vector<int32_t> kv_start;     // [num_virtual] first position
  std::vector<int32_t> page_table;   // [num_virtual, pages_per_chunk]; page 0 past the request's row
  int pages_per_chunk = 0;
};
// `chunk` is a multiple of page_size. It must be the model's chunk: a shorter one would hide keys.
// page_table: [num_reqs, page_table_width].
VirtualBatches local_attention_batches(int chunk, int page_size, View<const int32_t> cu_seqlen_q,
                                       View<const int32_t> seqlen_kv, View<const int32_t> page_table,
                                       int page_table_width);

// Returns an upper bound on the number of virtual requests: a request has one more than the chunk boundaries
// within its new tokens, and each has at least one token. Used for sizes of static arrays.
int max_virtual_batches(int num_reqs, int num_tokens, int chunk);

// Returns the splits per request of Triton's decode kernel, [num_reqs]. They depend on the whole batch, so
// they are not batch-invariant. Lengths must be at least 1, including those of padding requests.
std::vector<int32_t> num_kv_splits(View<const int32_t> seqlen_kv, int num_q_heads, int num_kv_heads,
                                   int max_splits, int num_sms);

// Converts tree masks of other layouts to words (attention_batch.h). Requests are consecutive; a non-zero
// byte means visible.
//   kFullMask   seqlen_q rows of seqlen_kv bytes (prefix columns first)
//   kQlenOnly   seqlen_q rows of seqlen_q bytes
//   kBitPacked  the bits of seqlen_q rows of seqlen_q, low bit first; each request starts at a new byte
//
// words: [at least num_tokens, tree_mask_words]; unused words become 0. Throws Error(kInvalidArgument) if a
// size does not match the lengths, and Error(kUnsupported) if a full mask hides a key of the prefix, which
// words cannot represent.
enum class TreeMaskLayout : uint8_t { kFullMask, kQlenOnly, kBitPacked };
void pack_tree_mask(TreeMaskLayout layout, View<const uint8_t> mask, View<const int32_t> cu_seqlen_q,
                    View<const int32_t> seqlen_kv, int tree_mask_words, View<uint64_t> words);

// Tree part of cascade attention for kernels without a tree mask (used by SGLang with FlashAttention for
// several branches). Every new token becomes a request of one query, which attends without a causal mask to
// the new tokens that it sees. The caller merges this with attention to the prefix by LSE.
struct TreeRequests {
  std::vector<int32_t> seqlen_kv;  // [num_tokens]: number of new tokens that the token sees
  std::vector<int32_t> slots;      // [num_tokens, width]: their slots, in order, followed by those of unseen
                                   // tokens
  int width = 0;                   // the largest seqlen_q
};
// slots: [num_tokens], of the new tokens. tree_mask: [num_tokens, tree_mask_words].
TreeRequests expand_tree_requests(View<const uint64_t> tree_mask, int tree_mask_words,
                                  View<const int32_t> cu_seqlen_q, View<const int32_t> slots);

}  // namespace attend::kernels
#pragma GCC visibility pop
