// The softmax of a row over some of its keys, and how those of two ranges of keys become one. Whoever merges,
// a CTA on its way over the keys or one that reads what others left, does it with these functions from the
// lowest keys to the highest, so that the bits are the same.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

// What a score is multiplied with for exp2: capped scores have their scale already.
__device__ inline float score_factor(const AttentionParams& params) {
  return params.logit_cap > 0.0f ? kLog2E : params.scale * kLog2E;
}

// Weights of what is known of a row before a part of its keys, and of the part. `highest`: the larger of
// their largest scores.
struct MergeWeights {
  float before, part;
};
__device__ inline MergeWeights merge_weights(float before, float part, float highest, float factor) {
  // Products rounded by themselves: the weight of what has the largest score is exactly 1.
  const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, factor);
  return {ptx::ex2_approx(__fmul_rn(before, factor) - shift), ptx::ex2_approx(__fmul_rn(part, factor) - shift)};
}
// Of sums and of elements of the result. The compiler may not choose another way to round.
__device__ inline float merged(float before, float part, const MergeWeights& weights) {
  return __fmaf_rn(before, weights.before, __fmul_rn(part, weights.part));
}

struct RowResult {
  float out_factor, lse;
};
// The last step of a row: `largest` score and `sum` of weights to the factor of its output and to its LSE.
__device__ inline RowResult finish_row(const AttentionParams& params, float largest, float sum, float factor,
                                       int q_head) {
  if (sum == 0.0f) return {0.0f, -INFINITY};
  float denominator = sum;
  if (params.sinks != nullptr)
    denominator += ptx::ex2_approx(params.sinks[q_head] * kLog2E - largest * factor);
  return {params.v_scale * __frcp_rn(denominator), largest * factor * kLn2 + __logf(sum)};
}

}  // namespace attend::kernels::cuda::sm80
