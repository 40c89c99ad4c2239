// Metadata that a step's plan derives from ReqToTokenPool and the lengths. On the CPU these are pure
// functions of host arrays. Functions with a stream also run on a GPU with arrays in its memory, and then do
// not check their contents.
//
// Slots are translated in token space and divided by page_size last: a slot map is never applied to a page
// id.
#pragma once

#include <cstdint>

#include "attend/tensor/stream.h"
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

}  // namespace attend::kernels
#pragma GCC visibility pop
