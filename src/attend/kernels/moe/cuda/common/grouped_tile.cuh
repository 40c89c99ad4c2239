// Which rows of which expert a CTA of a grouped GEMM has.
#pragma once

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

__device__ __forceinline__ float silu_times(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace attend::kernels::cuda
