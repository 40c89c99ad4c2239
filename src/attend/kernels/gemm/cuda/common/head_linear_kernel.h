// Per-head linear layers on a GPU: parameters and launch.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

struct HeadLinearParams {
  TokenRows x;  // [num_tokens, num_heads, in_features]
  const void* weight;
  int64_t weight_head_stride, weight_out_stride, weight_in_stride;  // in elements
  OutRows out;                                                      // [num_tokens, num_heads, out_features]
  int32_t num_tokens, num_heads, in_features, out_features;
  Element element;  // element type of x, weight and out
};
// Supports any dtype and strides. One thread sums each output in float32, in the order of the inputs.
void launch_head_linear(const HeadLinearParams& params, void* stream);

}  // namespace attend::kernels::cuda
