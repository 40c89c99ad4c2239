// The arrays of a batch, made from how other interfaces state one: a length for all requests, sums of
// lengths, lengths before this call's keys are appended. One launch on a GPU, where the host reads no length.
#pragma once

#include <cstdint>

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/metadata/lengths.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Where the keys of a request lie: page table[r * table_stride + p / page_size], or, without a table, in row
// rows[r] (null: row r) of `row_spacing` tokens.
struct KeyPlaces {
  const int32_t* table = nullptr;
  int64_t table_stride = 0;
  int32_t page_size = 1;
  const int32_t* rows = nullptr;  // [num_reqs]
  int32_t row_spacing = 0;
  int32_t capacity = 0;  // keys of one request that there is room for
};

struct BatchSource {
  int32_t num_reqs = 0;
  Lengths seqlen_q = {};
  Lengths seqlen_cached = {};  // keys that are there already
  Lengths seqlen_new = {};     // keys that this call appends to them
  KeyPlaces places = {};
};

// What is wanted; an empty view is not written.
struct BatchArrays {
  View<int32_t> cu_seqlen_q = {};  // [num_reqs + 1]
  View<int32_t> seqlen_kv = {};    // [num_reqs]: cached and new
  View<int32_t> first_key = {};    // [num_reqs + 1] token of each request's first key; the last entry is 0
  View<int32_t> new_slots = {};  // [num_new_tokens] token slots of the new keys; -1: without room, or padding
};

// Throws Error(kInvalidArgument), on the CPU only, for a negative length and for keys that there is no room
// for, naming the request; on a GPU such keys get slot -1.
void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream);

// derive_batch(), and store_kv() of the new keys at the new slots: store.slots is arrays.new_slots, which on
// a GPU, where both are one launch, is not written. Errors are those of the two, and Error(kInvalidArgument)
// for other slots.
void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
