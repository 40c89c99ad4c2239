// Launches of tiled GEMMs for many rows on mma.sync (batch_invariant_gemm.cuh, head_gemm.cuh).
#pragma once

#include "attend/kernels/gemm/cuda/common/batch_invariant_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/common/head_linear_kernel.h"

namespace attend::kernels::cuda::sm80 {

// Tensor-core kernels, bit for bit equal to skinny_gemm_kernel.h for each row. x and weight have the
// function's dtype, their rows start at multiples of 16 bytes, and in_features is a multiple of 8.
void launch_batch_invariant_gemm_bf16(const BatchInvariantGemmParams& params, void* stream);
void launch_batch_invariant_gemm_f16(const BatchInvariantGemmParams& params, void* stream);

// x, weight and out have the function's dtype. in_features, out_features and the strides of x and of the
// weight are multiples of 8, and both start at multiples of 16 bytes. Strides of out are even, and it starts
// at a multiple of 4 bytes. Every output sums its inputs in one order, independent of the number of tokens.
void launch_head_gemm_bf16(const HeadLinearParams& params, void* stream);
void launch_head_gemm_f16(const HeadLinearParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
