// How warps, and then CTAs of a cluster, that have the same rows over different keys merge them. The order of
// sums is the order of their numbers, so that bits are the same each time.
#pragma once

#include "attend/kernels/common/cuda/ptx/mma.cuh"

namespace attend::kernels::cuda::sm80 {

// A row's state over the keys of several, and what each of those is rescaled with.
template <int kCount>
struct MergedState {
  float row_max, row_sum;
  float rescale[kCount];
};

// `state_of(i)`: row max and row sum of one of `kCount`, in the order in which they are summed.
template <int kCount, class StateOf>
__device__ MergedState<kCount> merged_state(float softmax_scale_log2, const StateOf& state_of) {
  MergedState<kCount> merged{-INFINITY, 0.0f, {}};
#pragma unroll
  for (int i = 0; i < kCount; ++i) merged.row_max = fmaxf(merged.row_max, state_of(i).x);
  const float shift = merged.row_max == -INFINITY ? 0.0f : merged.row_max * softmax_scale_log2;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float2 state = state_of(i);
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

}  // namespace attend::kernels::cuda::sm80
