// The GEMM of heads (head_gemm.cuh): its launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/head_linear_kernel.h"

namespace attend::kernels::cuda::sm80 {

// 16-bit elements of the function's type; in_features, out_features and the strides of x and of the weight
// are multiples of 8, both begin at multiples of 16 bytes; strides of out are even, and it begins at a
// multiple of 4 bytes. Every output is added up in one order of its inputs, however many tokens there are.
void launch_head_gemm_bf16(const HeadLinearParams& params, void* stream);
void launch_head_gemm_f16(const HeadLinearParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
