// Descales per request and KV head.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

__device__ inline float load_head_scale(const HeadScaleParams& scales, int request, int head) {
  return scales.data == nullptr ? 1.0f
                                : scales.data[request * scales.request_stride + head * scales.head_stride];
}

inline bool has_descales(const AttentionParams& params) {
  return params.q_scales.data != nullptr || params.k_scales.data != nullptr ||
         params.v_scales.data != nullptr;
}

// Factors of the scores and outputs of a request and KV head, in addition to the common scales.
struct HeadDescales {
  float scores, out;
};
__device__ inline HeadDescales load_descales(const AttentionParams& params, int request, int head) {
  // The row max of rows without keys is -inf, and its product with 0 would be NaN.
  constexpr float kMinScoreScale = 0x1p-60f;
  const float scores =
      load_head_scale(params.q_scales, request, head) * load_head_scale(params.k_scales, request, head);
  return {scores < kMinScoreScale ? kMinScoreScale : scores, load_head_scale(params.v_scales, request, head)};
}

}  // namespace attend::kernels::cuda
