// The swap-AB split-K GEMM of quantised weights: what crosses to the device, and the launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantised_weight.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm_kernel.h"

namespace attend::kernels::cuda::sm90 {

// As SwapAbGemmParams, but that `weight` there maps codes, and K-blocks are 128 bytes of a row of them.
struct SwapAbCodesParams {
  SwapAbGemmParams gemm;
  QuantisedWeight weight;  // fp8 or int4
};

void launch_swap_ab_codes_bf16(const SwapAbCodesParams& params, const SwapAbGemmShape& shape, void* stream);
void launch_swap_ab_codes_f16(const SwapAbCodesParams& params, const SwapAbGemmShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
