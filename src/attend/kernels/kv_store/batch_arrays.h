// The arrays of a batch, made from how other interfaces state one: a length for all requests, sums of
// lengths, lengths before this call's keys are appended. One launch on a GPU, where the host reads no length.
#pragma once

#include <cstdint>

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Where the keys of a request lie: page table[r * table_stride + p / page_size]; or, without a table, from
// token begins[r] on; or, without those, in row rows[r] (null: row r) of `row_spacing` tokens.
struct KvLocations {
  const int32_t* table = nullptr;
  int64_t table_stride = 0;
  int32_t page_size = 1;
  int32_t page_spacing = 0;         // tokens of memory from one page to the next; for key_slots alone
  const int32_t* begins = nullptr;  // [num_reqs]
  const int32_t* rows = nullptr;    // [num_reqs]
  int32_t row_spacing = 0;
  int32_t capacity = 0;  // keys of one request that there is room for
};

struct BatchSource {
  int32_t num_reqs = 0;
  Lengths seqlen_q = {};
  Lengths seqlen_cached = {};  // keys that are there already
  Lengths seqlen_new = {};     // keys that this call appends to them
  KvLocations locations = {};
  const int32_t* leftpad = nullptr;  // [num_reqs] keys at its beginning that are not a request's; null: none
  const int32_t* seqused_q = nullptr;  // [num_reqs] queries of each request, the first; null: all of them
};

// Requests of the batch that attends. With seqused_q each is two: its queries, and its other rows, which see
// no key.
inline int32_t num_batch_reqs(const BatchSource& source) {
  return source.seqused_q == nullptr ? source.num_reqs : 2 * source.num_reqs;
}

// What is wanted; an empty view is not written. num_batch_reqs() is n.
struct BatchArrays {
  View<int32_t> cu_seqlen_q = {};  // [n + 1]
  View<int32_t> seqlen_kv =
      {};  // [n]: cached and new, without the leftpad; with key_slots, on a GPU, those that have one
  // [n + 1] token of each request's first key behind the leftpad; with a table, where its row begins in that,
  // as kCsr wants it. The last entry is 0.
  View<int32_t> first_key = {};
  View<int32_t> new_slots = {};  // [num_new_tokens] token slots of the new keys; -1: without room, or padding
  // [num_reqs, capacity] with a table: tokens of memory where the keys behind the leftpad lie, since those do
  // not begin with a page. Entries without a key are not written.
  View<int32_t> key_slots = {};
};

// Throws Error(kInvalidArgument), on the CPU only, for a negative length and for keys that there is no room
// for, a leftpad above the number of keys and a seqused_q above that of queries, naming the request; on a GPU
// such keys get slot -1, and the two count as 0 or the number.
void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream);

// derive_batch(), and store_kv() of the new keys at the new slots: store.slots is arrays.new_slots, which on
// a GPU, where both are one launch, is not written. Errors are those of the two, and Error(kInvalidArgument)
// for other slots.
void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
