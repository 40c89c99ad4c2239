// Which rows of which expert a CTA of a grouped GEMM has.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda {

struct GroupedTile {
  int expert = -1;  // -1: none
  int first_row = 0, end_row = 0;
};

// Of the CTA's blockIdx.x. All threads call it, once.
template <int kThreads, int kTileRows>
__device__ __forceinline__ GroupedTile find_grouped_tile(const GroupedGemmParams& params) {
  const int tile = static_cast<int>(blockIdx.x);
  if (tile >= params.first_tile[params.num_experts]) return {};
  __shared__ int expert_of_tile;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_experts; i += kThreads)
    if (params.first_tile[i] <= tile && tile < params.first_tile[i + 1]) expert_of_tile = i;
  __syncthreads();
  const int expert = expert_of_tile;
  const int first_row = params.first_row[expert] + (tile - params.first_tile[expert]) * kTileRows;
  return {.expert = expert,
          .first_row = first_row,
          .end_row = min(first_row + kTileRows, params.first_row[expert + 1])};
}

// The row of W, among those of all experts, of an output; of a gated product of its gate (half 0) or up (1).
__device__ __forceinline__ int64_t expert_weight_row(const GroupedGemmParams& params, int expert, int half,
                                                     int output) {
  const int64_t first = int64_t{expert} * (params.gated ? 2 : 1) * params.out_features;
  if (params.alternating) return first + 2 * output + half;
  return first + int64_t{half} * params.out_features + output;
}

__device__ __forceinline__ float silu_times(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

// What is no number stays so.
__device__ __forceinline__ float clamped_swiglu(float gate, float up, float limit, float alpha) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return (up + 1.0f) * gate / (1.0f + expf(-alpha * gate));
}

// What is added to an output's sum, or to those of its gate and up.
struct ExpertBias {
  float first = 0.0f, up = 0.0f;
};
__device__ __forceinline__ ExpertBias expert_bias(const GroupedGemmParams& params, int expert, int output) {
  const DeviceVector& from = params.epilogue.bias;
  if (from.data == nullptr) return {};
  ExpertBias bias;
  bias.first = load_element(from.data, expert_weight_row(params, expert, 0, output), from.element);
  if (params.gated)
    bias.up = load_element(from.data, expert_weight_row(params, expert, 1, output), from.element);
  return bias;
}

// An output of a row from its sum, or from those of gate and up.
__device__ __forceinline__ float expert_output(const GroupedGemmParams& params, int row, float sum, float up,
                                               const ExpertBias& bias) {
  const ExpertEpilogue& rule = params.epilogue;
  if (rule.input_weights != nullptr) {
    const float weight = rule.input_weights[rule.pair_of_row != nullptr ? rule.pair_of_row[row] : row];
    sum *= weight;
    up *= weight;
  }
  sum += bias.first;
  if (!params.gated) return sum;
  up += bias.up;
  return rule.clamped ? clamped_swiglu(sum, up, rule.limit, rule.alpha) : silu_times(sum, up);
}
__device__ __forceinline__ float expert_output(const GroupedGemmParams& params, int expert, int row,
                                               int output, float sum, float up) {
  return expert_output(params, row, sum, up, expert_bias(params, expert, output));
}

}  // namespace attend::kernels::cuda
