// Dense layers of few rows: bound by the reading of the weights.
#pragma once

#include "attend/kernels/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxFewRows = 16;

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves, with x of at most kMaxFewRows
// rows; x and weight are of one 16-bit type, their rows begin at multiples of 16 bytes, and in_features is a
// multiple of 8.
struct FewRowsParams {
  const void* x;  // row r begins at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  // [in_features], bf16 as x is then, aligned to 16 bytes: rows of x are first divided by the root of their
  // mean square plus norm_eps, and multiplied with it; null: not
  const void* norm;
  float norm_eps;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;  // gated: weight and bias have twice as many outputs
  bool gated;
  bool accumulate;  // not gated: what out holds is added
  Element element;  // of x and weight
  Element out_element;
};
void launch_few_rows(const FewRowsParams& params, void* stream);

}  // namespace attend::kernels::cuda
