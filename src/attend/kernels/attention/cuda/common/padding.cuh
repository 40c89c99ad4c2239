// Tokens after the last request: output 0, LSE -inf.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/cuda/element.cuh"

namespace attend::kernels::cuda {

// Writes tokens from `first`. The CTAs of the grid's first row share the tokens, and the first `num_threads`
// threads of each write them. Loops are not unrolled: few calls have such tokens, and every call fetches the
// code.
__device__ inline void write_padding(const AttentionParams& params, int first, int num_threads) {
  if (blockIdx.y > 0) return;
  for (int token = first + static_cast<int>(blockIdx.x); token < params.num_tokens; token += gridDim.x) {
    const int num_elements = params.num_q_heads * params.head_dim_v;
#pragma unroll 1
    for (int i = threadIdx.x; i < num_elements; i += num_threads) {
      const int head = i / params.head_dim_v;
      store_element(params.out.data,
                    token * params.out.token_stride + head * params.out.head_stride + i % params.head_dim_v,
                    params.out_element, 0.0f);
    }
    if (params.lse == nullptr) continue;
#pragma unroll 1
    for (int head = threadIdx.x; head < params.num_q_heads; head += num_threads)
      params.lse[token * params.lse_token_stride + head * params.lse_head_stride] = -INFINITY;
  }
}

// Called by all threads of a CTA.
__device__ inline void write_padding(const AttentionParams& params, int first) {
  write_padding(params, first, static_cast<int>(blockDim.x));
}

}  // namespace attend::kernels::cuda
