// Swap-AB split-K GEMM of quantized weights: parameters and launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm_kernel.h"

namespace attend::kernels::cuda::sm90 {

// SwapAbGemmParams, where `weight` maps quantized values and K-blocks are 128 bytes of a quantized row.
struct SwapAbQuantizedParams {
  SwapAbGemmParams gemm;
  QuantizedWeight weight;  // fp8 or int4
};

void launch_swap_ab_quantized_bf16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                   void* stream);
void launch_swap_ab_quantized_f16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                  void* stream);

// Swap-AB split-K GEMM of int4 with scaled operands, and of fp8 with row scales: launches.

inline constexpr int kQuantizedTileWarpgroups = 2;
inline constexpr int kScaledPartInputs = 32;  // inputs that are dequantized while the previous ones are
                                              // multiplied
// Stages of the pipelines. x has one stage per K-block of x in a K-block of int4, so that stages are
// compile-time constants.
inline constexpr int kScaledQuantizedTokenStages = kScaledStageInputs / kBlockInputs,
                     kScaledQuantizedWeightStages = 4;

void launch_scaled_quantized_bf16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                  void* stream);
void launch_scaled_quantized_f16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                 void* stream);

}  // namespace attend::kernels::cuda::sm90
