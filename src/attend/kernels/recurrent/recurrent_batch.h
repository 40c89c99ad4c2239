// RecurrentBatch: requests of a step and the states that recurrent layers read and write for them.
#pragma once

#include <cstdint>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// States are rows of a pool: state slot i of a layer is state[i]. The slot of a request is its request row,
// and slots after the rows hold snapshots. Slot 0 is the padding slot: it is never read or written.
//
// A request whose tokens are all new (seqlen_kv = seqlen_q) starts from a state of zeros, and its slot is not
// read. The other requests start from the state of their slot, or of another slot. After the last token, the
// state is written to the request's slot. Tokens of padding requests have output 0. Slots that a step does
// not name may contain anything, also NaN.
//
// All arrays are in memory of the stream's device.
struct RecurrentBatch {
  View<const int32_t> rows;         // [num_reqs] slot of each request; 0: padding
  View<const int32_t> seqlen_kv;    // [num_reqs], including the step's tokens
  View<const int32_t> cu_seqlen_q;  // [num_reqs + 1]
  // [num_reqs] slot with the state before the step; 0: the request's own. Empty: all read their own.
  View<const int32_t> load_slots = {};
  // [num_tokens] another slot that receives the state after the token; 0: none. Empty: none for all tokens.
  View<const int32_t> save_slots = {};
  // GPUs: every token is one step of the recurrence, in prompts too, so that the bits of a token do not
  // depend on the division of its sequence into steps. Otherwise, requests with many new tokens use a chunk
  // form, which rounds differently and is faster. CPUs always use the recurrence.
  bool batch_invariant = false;

  int64_t num_reqs() const { return std::ssize(rows); }
};

// Checks the sizes of the arrays for `num_tokens` tokens and `num_slots` state slots and, in host memory,
// their contents. Throws Error(kInvalidArgument) with the array and its value.
void check(const RecurrentBatch& batch, int64_t num_tokens, int64_t num_slots, const Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
