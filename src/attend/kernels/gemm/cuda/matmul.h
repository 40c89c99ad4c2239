// Matrix products of any size through cuBLASLt.
#pragma once

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda {

// out = x weight^T, plus what `out` holds when `accumulate`. x: [num_rows, in_features], weight:
// [out_features, in_features] of the same dtype, out: [num_rows, out_features] of that dtype or f32; last
// strides 1. Sums in float32 (no TF32).
//
// What algorithm a shape gets is asked for once per device and remembered. Throws Error(kUnsupported) when
// libcublasLt is not installed or has none for the shape.
void matmul(const TensorView& x, const TensorView& weight, const TensorView& out, bool accumulate,
            Stream& stream);

// Codes of e4m3, row r of which stands for numbers / scales[r]. Scales are f32 and begin at a multiple of 16
// bytes.
struct ScaledRows {
  TensorView codes;  // [rows, in_features], contiguous
  const float* scales;
};
// The same of fp8: sums of products of codes, by tensor cores that keep fewer bits than float32 while they
// add, times both scales. in_features and out_features are multiples of 16. Hopper.
void matmul(const ScaledRows& x, const ScaledRows& weight, const TensorView& out, bool accumulate,
            Stream& stream);
// Whether the build and the library that is installed have those: CUDA 12.9.
bool has_scaled_matmul();

}  // namespace attend::kernels::cuda
