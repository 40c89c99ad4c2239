// Batch-invariant GEMM: a row's bits depend neither on other rows nor on their number.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda {

// out = x weight^T (+ bias) (+ out).
struct BatchInvariantGemmParams {
  const void* x;  // row r starts at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  void* out;  // row r starts at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;
  bool accumulate;  // adds to the contents of out
  Element out_element;
};

// Supports any layout, any dtype of x and any weight format. One thread sums each output in float32, in the
// order of the weight's columns.
struct NaiveGemmParams {
  BatchInvariantGemmParams product;
  QuantizedWeight weight;
  Element element;  // element type of x
};
void launch_naive_gemm(const NaiveGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda
