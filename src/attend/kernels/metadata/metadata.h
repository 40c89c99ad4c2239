// Metadata that a step's plan derives from ReqToTokenPool and the lengths. On the CPU these are pure
// functions of host arrays. Functions with a stream also run on a GPU with arrays in its memory, and then do
// not check their contents.
//
// Slots are translated in token space and divided by page_size last: a slot map is never applied to a page
// id.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Request rows of a step: table[rows[r] * stride + p] is the token slot of position p of request r.
struct RequestRows {
  const int32_t* table = nullptr;     // [num_rows, stride]
  int64_t stride = 0;                 // in elements
  View<const int32_t> rows;           // [num_reqs]
  View<const int32_t> seqlen_kv;      // [num_reqs]
  const int32_t* slot_map = nullptr;  // full slot -> SWA slot; null: no translation
  int64_t max_seqlen_kv = 0;          // maximum length of a row; 0: stride
};

// page_table[r * width + j] = slot of position j * page_size, divided by page_size, for j < ceil(seqlen_kv /
// page_size); the rest of a row is not written. page_table: [num_reqs, width].
//
// This function and the next two write to the caller's arrays and do not allocate. They throw
// Error(kInvalidArgument) if a length does not fit its row or a result does not fit its array.
void build_page_table(const RequestRows& requests, int page_size, int width, View<int32_t> page_table);
void build_page_table(const RequestRows& requests, int page_size, int width, View<int32_t> page_table,
                      Stream& stream);

// CSR of page ids: indptr [num_reqs + 1] in pages, indices [at least indptr[num_reqs]]. Entries from
// indptr[num_reqs] on are not written.
void build_csr(const RequestRows& requests, int page_size, View<int32_t> indptr, View<int32_t> indices);
void build_csr(const RequestRows& requests, int page_size, View<int32_t> indptr, View<int32_t> indices,
               Stream& stream);

// Slots of a step's new tokens, which a GPU's copy of ReqToTokenPool does not contain yet.
struct NewSlots {
  View<const int32_t> rows;         // [num_reqs]
  View<const int32_t> cu_seqlen_q;  // [num_reqs + 1]
  View<const int32_t> positions;    // [num_tokens]
  View<const int32_t> slots;        // [num_tokens]; -1: none
  // Only for pools with a sliding-window half; otherwise empty and null.
  View<const int32_t> swa_slots = {};  // [num_tokens]: slot_map[slots]
  int32_t* slot_map = nullptr;         // full slot -> SWA slot
};
// table[rows[r], positions[t]] = slots[t] for the tokens t of each request r, and slot_map[slots[t]] =
// swa_slots[t] if there is a slot map. GPUs only: the host writes its own tables when it allocates. table:
// int32 [num_rows, max_context_len]. Throws Error(kUnsupported) on the CPU.
void write_new_slots(const NewSlots& slots, const TensorView& table, Stream& stream);

// translated[i] = slot_map[slots[i]]; -1 stays -1. `translated` may be `slots`.
void translate_slots(const int32_t* slot_map, View<const int32_t> slots, View<int32_t> translated);

// Metadata for backends with other contracts than attend's kernels: virtual batches, Triton's split counts,
// tree masks of other layouts. Pure functions of host arrays.

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
