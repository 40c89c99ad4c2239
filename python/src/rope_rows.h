// Rotary embeddings, and descales that lie in tensors: what FlashAttention does inside its kernel are here
// launches before attention, of queries and new keys, and behind it, of the result.
#pragma once

#include <optional>

#include "attention_call.h"
#include "descale.h"
#include "result_tensor.h"

namespace attend::python {

struct Descales {
  Descale q, k, v;
  bool any_tensor() const { return q.is_tensor() || k.is_tensor() || v.is_tensor(); }
};

struct RotaryArguments {
  TensorArgument cos, sin;  // [num_positions, pairs]
  TensorArgument seqlens;   // int32 [num_reqs], where new keys stand, if not behind those in the cache
  bool is_interleaved = false;
};

// Rows on their way between the caller's tensors and a call's, which live as long as this.
class RopeRows {
 public:
  // `call` is complete but for what this puts in between, its q, k_new and out. Throws Error naming the
  // argument.
  RopeRows(AttentionCall& call, nb::handle q_object, nb::handle k_new_object,
           const std::optional<RotaryArguments>& rotary, const Descales& descales);

 private:
  ResultTensor q_, k_new_, out_;
};

}  // namespace attend::python
