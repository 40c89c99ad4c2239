// RoPE and descales in tensors, which FlashAttention applies inside its kernel. Here they are separate
// launches: before attention for queries and new keys, and after it for the result.
#pragma once

#include <optional>

#include "attention/attention_call.h"
#include "attention/descale.h"
#include "tensors/result_tensor.h"

namespace attend::python {

struct Descales {
  Descale q, k, v;
  bool any_tensor() const { return q.is_tensor() || k.is_tensor() || v.is_tensor(); }
};

struct RotaryArguments {
  TensorArgument cos, sin;  // [num_positions, pairs]
  TensorArgument seqlens;  // int32 [num_reqs], positions of new keys if they do not follow those in the cache
  bool is_interleaved = false;
};

// Intermediate rows between the caller's tensors and a call's, owned by this object.
class RopeRows {
 public:
  // `call` is complete except q, k_new and out, which this object sets. Throws Error that names the argument.
  RopeRows(AttentionCall& call, nb::handle q_object, nb::handle k_new_object,
           const std::optional<RotaryArguments>& rotary, const Descales& descales);

 private:
  ResultTensor q_, k_new_, out_;
};

}  // namespace attend::python
