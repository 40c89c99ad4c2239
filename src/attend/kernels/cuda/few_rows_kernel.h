// Dense layers of few rows: bound by the reading of the weights.
#pragma once

#include "attend/kernels/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxFewRows = 16;

// out = x weight^T (+ bias), or silu(gate) * up of its two halves, with x of at most kMaxFewRows rows; x and
// weight are of one 16-bit type, their rows begin at multiples of 16 bytes, and in_features is a multiple
// of 8.
struct FewRowsParams {
  const void* x;  // row r begins at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;  // gated: weight and bias have twice as many outputs
  bool gated;
  Element element;  // of x and weight
  Element out_element;
};
void launch_few_rows(const FewRowsParams& params, void* stream);

}  // namespace attend::kernels::cuda
