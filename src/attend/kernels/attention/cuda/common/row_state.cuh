// Softmax state of a row over a range of its keys (row max, row sum), and the merge of the states of two
// ranges. Under fixed splits every merge, in a CTA that iterates over the keys or from partial results, uses
// merged() from the lowest keys to the highest, so that the bits are the same.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda {

inline constexpr float kLn2 = 0.69314718055994530942f;

// Factors of a row's state before a range of its keys, and of the range's state. `new_max`: the larger of
// their row maxima.
struct MergeScales {
  float before, partial;
};
__device__ inline MergeScales merge_scales(float before, float partial, float new_max,
                                           float softmax_scale_log2) {
  // Products are rounded separately, so that the scale of the state with the max is exactly 1.
  const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, softmax_scale_log2);
  return {ptx::ex2_approx(__fmul_rn(before, softmax_scale_log2) - shift),
          ptx::ex2_approx(__fmul_rn(partial, softmax_scale_log2) - shift)};
}
// Merges row sums or elements of the output. Intrinsics fix the rounding.
__device__ inline float merged(float before, float partial, const MergeScales& scales) {
  return __fmaf_rn(before, scales.before, __fmul_rn(partial, scales.partial));
}

// Destination of a row's result.
struct OutputRow {
  int token, q_head;
};

struct RowResult {
  float out_scale, lse;
};
// Final step of a row: converts row max and row sum to the scale of its output and to its LSE.
__device__ inline RowResult finish_row(const AttentionParams& params, float row_max, float row_sum,
                                       float softmax_scale_log2, int q_head) {
  if (row_sum == 0.0f) return {0.0f, params.empty_lse};
  float denominator = row_sum;
  if (params.sinks != nullptr)
    denominator += ptx::ex2_approx(params.sinks[q_head] * kLog2E - row_max * softmax_scale_log2);
  return {params.v_scale * __frcp_rn(denominator), row_max * softmax_scale_log2 * kLn2 + __logf(row_sum)};
}

// Soft cap of a scaled score: cap tanh(score / cap).
struct ScoreCap {
  float cap, to_exponent;

  __device__ explicit ScoreCap(const AttentionParams& params)
      : cap(params.logit_cap), to_exponent(2.0f * kLog2E * params.scale / params.logit_cap) {}
  __device__ float operator()(float score) const {
    // tanh x = 1 - 2 / (e^2x + 1)
    return cap * (1.0f - __fdividef(2.0f, ptx::ex2_approx(fminf(score * to_exponent, 120.0f)) + 1.0f));
  }
};

// Merge of warps, and then of CTAs of a cluster, with the same rows and different keys. Sums are in the order
// of their indices, so that bits are reproducible.

// State of a row over the keys of several parts, and the factor of each part.
template <int kCount>
struct MergedState {
  float row_max, row_sum;
  float rescale[kCount];
};

// `get_state(i)` returns row max and row sum of one of `kCount` parts, in the order of summation.
template <int kCount, class StateOf>
__device__ MergedState<kCount> merged_state(float softmax_scale_log2, const StateOf& get_state) {
  MergedState<kCount> merged{-INFINITY, 0.0f, {}};
#pragma unroll
  for (int i = 0; i < kCount; ++i) merged.row_max = fmaxf(merged.row_max, get_state(i).x);
  const float shift = merged.row_max == -INFINITY ? 0.0f : merged.row_max * softmax_scale_log2;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float2 state = get_state(i);
    merged.rescale[i] = ptx::ex2_approx(state.x * softmax_scale_log2 - shift);
    merged.row_sum += merged.rescale[i] * state.y;
  }
  return merged;
}

__device__ inline void add_scaled(float4& sum, float rescale, const float4& part) {
  sum.x += rescale * part.x;
  sum.y += rescale * part.y;
  sum.z += rescale * part.z;
  sum.w += rescale * part.w;
}
__device__ inline void add_scaled(float2& sum, float rescale, const float2& part) {
  sum.x += rescale * part.x;
  sum.y += rescale * part.y;
}

}  // namespace attend::kernels::cuda
