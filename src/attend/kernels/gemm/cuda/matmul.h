// Matrix products of any size through cuBLASLt.
#pragma once

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// out = x weight^T + bias, or out += x weight^T + bias if `accumulate` is set. x: [num_rows, in_features],
// weight: [out_features, in_features] in the same dtype, out: [num_rows, out_features] in that dtype or f32;
// last strides are 1. bias: [out_features], for which adds_bias() returns true; empty: none. Sums are in
// float32 (no TF32).
//
// The algorithm of a shape is selected once per device and cached. Throws Error(kUnsupported) if libcublasLt
// is not installed or has no algorithm for the shape.
void matmul(const TensorView& x, const TensorView& weight, const TensorView& out, bool accumulate,
            Stream& stream, const TensorView& bias = {});
// Returns true if matmul() can add the bias: it has the dtype of out and starts at a multiple of 16 bytes.
bool adds_bias(const TensorView& bias, const TensorView& out);

// Rows of e4m3 values with one f32 scale per row. Scales start at a multiple of 16 bytes.
struct ScaledRows {
  TensorView codes;  // [rows, in_features], contiguous
  const float* scales;
};
// fp8 overload: sums of products of quantized values times both scales. Tensor cores accumulate with fewer
// bits than float32. in_features and out_features are multiples of 16. Requires Hopper.
void matmul(const ScaledRows& x, const ScaledRows& weight, const TensorView& out, bool accumulate,
            Stream& stream);
// Returns true if the build and the installed library support scaled products (CUDA 12.9).
bool has_scaled_matmul();

}  // namespace attend::kernels::cuda
