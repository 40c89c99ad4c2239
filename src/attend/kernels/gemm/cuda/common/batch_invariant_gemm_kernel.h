// Batch-invariant GEMM: a row's bits depend neither on the other rows nor on their number.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda {

// out = x weight^T (+ bias) (+ out).
struct BatchInvariantGemmParams {
  const void* x;  // row r begins at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;
  bool accumulate;  // what out holds is added
  Element out_element;
};

// Any layout, x of any type and a weight of any format: every output is added up in float32 by one thread, in
// the order of the weight's columns.
struct NaiveGemmParams {
  BatchInvariantGemmParams product;
  QuantizedWeight weight;
  Element element;  // of x
};
void launch_naive_gemm(const NaiveGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda
