// The swap-AB split-K GEMM of quantized weights: what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm_kernel.h"

namespace attend::kernels::cuda::sm90 {

// As SwapAbGemmParams, but that `weight` there maps codes, and K-blocks are 128 bytes of a row of them.
struct SwapAbQuantizedParams {
  SwapAbGemmParams gemm;
  QuantizedWeight weight;  // fp8 or int4
};

void launch_swap_ab_quantized_bf16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                   void* stream);
void launch_swap_ab_quantized_f16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                  void* stream);

// The swap-AB split-K GEMM of int4 whose factors are scaled, and of fp8 with scales of rows: the launches.

inline constexpr int kQuantizedTileWarpgroups = 2;
inline constexpr int kScaledPartInputs = 32;  // that are widened while as many are multiplied
// Of the pipelines: of x as many as K-blocks of x to one of int4, so that code knows each one's stage.
inline constexpr int kScaledQuantizedTokenStages = kScaledStageInputs / kBlockInputs,
                     kScaledQuantizedWeightStages = 4;

void launch_scaled_quantized_bf16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                  void* stream);
void launch_scaled_quantized_f16(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape,
                                 void* stream);

}  // namespace attend::kernels::cuda::sm90
