// Dense layers of heads: each head has a weight of its own.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Last strides of x and out are 1, their other strides any. The weight has stride 1 in one of its last two
// dimensions: a slice of a matrix, or one that is read transposed.
struct HeadLinearArgs {
  TensorView x;       // [num_tokens, num_heads, in_features]. CPU: f32; GPU: f32, f16, bf16
  TensorView weight;  // [num_heads, out_features, in_features]: f32, f16, bf16; on a GPU of the dtype of x
  TensorView out;     // [num_tokens, num_heads, out_features]: as x
  View<std::byte> workspace = {};  // as of linear()
  bool batch_invariant = false;    // as of linear()
};
// out[t, h] = weight[h] x[t, h], added up in float32. Throws Error(kInvalidArgument) for shapes, strides and
// devices, Error(kUnsupported) for dtypes.
void head_linear(const HeadLinearArgs& args, Stream& stream);
void check(const HeadLinearArgs& args, const Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
