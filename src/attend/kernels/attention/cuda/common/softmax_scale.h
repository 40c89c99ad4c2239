// What scores are scaled by so that the softmax's exponentials are powers of two.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;

// scale log2(e); capped scores have their scale already.
ATTEND_HOST_DEVICE inline float softmax_scale_log2_of(const AttentionParams& params) {
  return params.logit_cap > 0.0f ? kLog2E : params.scale * kLog2E;
}

}  // namespace attend::kernels::cuda
