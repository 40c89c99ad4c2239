// Dense layers: out = x W^T + b.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

struct LinearArgs {
  TensorView x;       // [num_rows, in_features]; last stride 1. CPU: f32
  TensorView weight;  // [out_features, in_features], contiguous: f32, f16, bf16; stays as it is stored
  TensorView bias;    // [out_features]: f32, f16, bf16; empty: none
  TensorView out;     // [num_rows, out_features]: dtype of x; last stride 1
};
// Accumulates in float32. A row's result does not depend on the other rows' values.
void linear(const LinearArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
