// Dense layers: out = x W^T + b.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

struct LinearArgs {
  TensorView x;  // [num_rows, in_features]; last stride 1. CPU: f32; GPU: f32, f16, bf16
  TensorView
      weight;  // [out_features, in_features], contiguous: f32, f16, bf16 as it is stored; GPU: dtype of x
  TensorView bias;  // [out_features]: f32, f16, bf16; empty: none
  TensorView out;   // [num_rows, out_features]: dtype of x, or f32; last stride 1
};
// Accumulates in float32. A row's result does not depend on the other rows' values.
void linear(const LinearArgs& args, Stream& stream);

// The first half of a gated MLP: out = silu(gate) * up with [gate | up] = x W^T + b.
struct GatedLinearArgs {
  TensorView x;        // [num_rows, in_features]
  TensorView weight;   // [2 * intermediate, in_features]
  TensorView bias;     // [2 * intermediate]; empty: none
  TensorView gate_up;  // [num_rows, 2 * intermediate]: scratch
  TensorView out;      // [num_rows, intermediate]
};
// dtypes and strides as linear() and silu_mul() take them. On a GPU a few rows are one launch.
void gated_linear(const GatedLinearArgs& args, Stream& stream);

}  // namespace attend::kernels
