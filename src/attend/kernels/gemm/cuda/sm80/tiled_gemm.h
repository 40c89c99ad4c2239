// GEMMs of tiles of many rows on mma.sync (batch_invariant_gemm.cuh, head_gemm.cuh): their launches.
#pragma once

#include "attend/kernels/gemm/cuda/common/batch_invariant_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/common/head_linear_kernel.h"

namespace attend::kernels::cuda::sm80 {

// On tensor cores: bit for bit what skinny_gemm_kernel.h computes of the same row. x and weight are of the
// function's type, their rows begin at multiples of 16 bytes, and in_features is a multiple of 8.
void launch_batch_invariant_gemm_bf16(const BatchInvariantGemmParams& params, void* stream);
void launch_batch_invariant_gemm_f16(const BatchInvariantGemmParams& params, void* stream);

// 16-bit elements of the function's type; in_features, out_features and the strides of x and of the weight
// are multiples of 8, both begin at multiples of 16 bytes; strides of out are even, and it begins at a
// multiple of 4 bytes. Every output is added up in one order of its inputs, however many tokens there are.
void launch_head_gemm_bf16(const HeadLinearParams& params, void* stream);
void launch_head_gemm_f16(const HeadLinearParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
