// Arrays of a batch, derived from the conventions of other interfaces: one length for all requests,
// cumulative lengths, or lengths before this call's keys are appended. One launch on a GPU, where the host
// reads no length.
#pragma once

#include <cstdint>

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Location of the keys of a request: page table[r * table_stride + p / page_size]; without a table, token
// begins[r] onwards; without begins, row rows[r] (null: row r) of `row_spacing` tokens.
struct KvLocations {
  const int32_t* table = nullptr;
  int64_t table_stride = 0;
  int32_t page_size = 1;
  int32_t page_spacing = 0;         // tokens of memory between pages; only for key_slots
  const int32_t* begins = nullptr;  // [num_reqs]
  const int32_t* rows = nullptr;    // [num_reqs]
  int32_t row_spacing = 0;
  int32_t capacity = 0;  // maximum number of keys of a request
};

struct BatchSource {
  int32_t num_reqs = 0;
  Lengths seqlen_q = {};
  Lengths seqlen_cached = {};  // keys that are already cached
  Lengths seqlen_new = {};     // keys that this call appends
  KvLocations locations = {};
  const int32_t* leftpad = nullptr;  // [num_reqs] keys at the start that do not belong to the request; null:
                                     // none
  const int32_t* seqused_q = nullptr;  // [num_reqs] leading queries of each request that are used; null: all
};

// Requests of the derived batch. With seqused_q each request has two: its used queries, and its other rows,
// which see no keys.
inline int32_t num_batch_reqs(const BatchSource& source) {
  return source.seqused_q == nullptr ? source.num_reqs : 2 * source.num_reqs;
}

// Output arrays; empty views are not written. num_batch_reqs() is n.
struct BatchArrays {
  View<int32_t> cu_seqlen_q = {};  // [n + 1]
  // [n]: cached and new keys without the leftpad; with key_slots on a GPU, keys that have one.
  View<int32_t> seqlen_kv = {};
  // [n + 1] token of each request's first key after the leftpad; with a table, the start of its row in the
  // table, for kCsr. The last entry is 0.
  View<int32_t> first_key = {};
  View<int32_t> new_slots = {};  // [num_new_tokens] token slots of the new keys; -1: no space, or padding
  // [num_reqs, capacity] with a table: tokens of memory of the keys after the leftpad, which do not start at
  // a page boundary. Entries without a key are not written.
  View<int32_t> key_slots = {};
};

// Throws Error(kInvalidArgument) with the request, on the CPU only, for a negative length, for keys that do
// not fit, for a leftpad above the number of keys and for a seqused_q above the number of queries. On a GPU,
// keys that do not fit get slot -1, and leftpad and seqused_q are clamped.
void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream);

// derive_batch(), then store_kv() of the new keys at the new slots: store.slots is arrays.new_slots. On a GPU
// both are one launch, which does not write new_slots. Throws the errors of both, and Error(kInvalidArgument)
// for other slots.
void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
