// Matrix products of any size through cuBLASLt.
#pragma once

#include "attend/tensor/stream.h"
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

}  // namespace attend::kernels::cuda
