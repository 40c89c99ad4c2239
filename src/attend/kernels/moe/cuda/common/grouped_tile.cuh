// Maps a CTA of a grouped GEMM to its expert and rows.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/norm_rope/gelu.h"

namespace attend::kernels::cuda {

struct GroupedTile {
  int expert = -1;  // -1: none
  int first_row = 0, end_row = 0;
};

// Finds the tile of the CTA's blockIdx.x. Called once by all threads.
template <int kThreads, int kTileRows>
__device__ __forceinline__ GroupedTile find_grouped_tile(const GroupedGemmParams& params) {
  const int tile = static_cast<int>(blockIdx.x);
  if (tile >= params.first_tile[params.num_experts]) return {};
  __shared__ int tile_expert;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_experts; i += kThreads)
    if (params.first_tile[i] <= tile && tile < params.first_tile[i + 1]) tile_expert = i;
  __syncthreads();
  const int expert = tile_expert;
  const int first_row = params.first_row[expert] + (tile - params.first_tile[expert]) * kTileRows;
  return {.expert = expert,
          .first_row = first_row,
          .end_row = min(first_row + kTileRows, params.first_row[expert + 1])};
}

// Returns the row of W, among those of all experts, for an output. For a gated product, half 0 is gate and
// half 1 is up.
__device__ __forceinline__ int64_t expert_weight_row(const GroupedGemmParams& params, int expert, int half,
                                                     int output) {
  const int64_t first = int64_t{expert} * (params.gated ? 2 : 1) * params.out_features;
  if (params.alternating) return first + 2 * output + half;
  return first + int64_t{half} * params.out_features + output;
}

// Returns z with gelu_tanh(x) = x / (1 + e^-z).
__device__ __forceinline__ float gelu_exponent(float x) {
  return 2.0f * kGeluScale * (x + kGeluCubic * x * x * x);
}
__device__ __forceinline__ float gelu_times(float gate, float up) {
  return gate / (1.0f + expf(-gelu_exponent(gate))) * up;
}
__device__ __forceinline__ float silu_times(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

// NaN stays NaN.
__device__ __forceinline__ float clamped_swiglu(float gate, float up, float limit, float alpha) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return (up + 1.0f) * gate / (1.0f + expf(-alpha * gate));
}

// Returns an output of a row from its sum, or from the sums of gate and up. `add_bias` adds the biases.
template <class AddBias>
__device__ __forceinline__ float expert_output(const GroupedGemmParams& params, int row, float sum, float up,
                                               const AddBias& add_bias) {
  const ExpertEpilogue& rule = params.epilogue;
  if (rule.input_weights != nullptr) {
    const float weight = rule.input_weights[rule.row_pair != nullptr ? rule.row_pair[row] : row];
    sum *= weight;
    up *= weight;
  }
  add_bias(sum, up);
  if (!params.gated) return sum;
  if (rule.clamped) return clamped_swiglu(sum, up, rule.limit, rule.alpha);
  return rule.gelu ? gelu_times(sum, up) : silu_times(sum, up);
}
__device__ __forceinline__ float expert_output(const GroupedGemmParams& params, int expert, int row,
                                               int output, float sum, float up) {
  const DeviceVector& bias = params.epilogue.bias;
  return expert_output(params, row, sum, up, [&](float& first, float& second) {
    if (bias.data == nullptr) return;
    first += load_element(bias.data, expert_weight_row(params, expert, 0, output), bias.element);
    if (params.gated)
      second += load_element(bias.data, expert_weight_row(params, expert, 1, output), bias.element);
  });
}

}  // namespace attend::kernels::cuda
