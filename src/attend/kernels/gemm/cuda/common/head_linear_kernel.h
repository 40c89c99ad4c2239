// Dense layers of heads on a GPU: what crosses to the device, and the launch.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

struct HeadLinearParams {
  TokenRows x;  // [num_tokens, num_heads, in_features]
  const void* weight;
  int64_t weight_head_stride, weight_out_stride, weight_in_stride;  // of elements
  OutRows out;                                                      // [num_tokens, num_heads, out_features]
  int32_t num_tokens, num_heads, in_features, out_features;
  Element element;  // of all three
};
// Any dtype and strides: every output is added up in float32 by one thread, in the order of the inputs.
void launch_head_linear(const HeadLinearParams& params, void* stream);

}  // namespace attend::kernels::cuda
