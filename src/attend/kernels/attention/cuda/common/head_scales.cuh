// Descales of each request and K/V head, on the device.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

__device__ inline float scale_of(const HeadScaleParams& scales, int request, int head) {
  return scales.data == nullptr ? 1.0f
                                : scales.data[request * scales.request_stride + head * scales.head_stride];
}

}  // namespace attend::kernels::cuda
