// Launches the skinny GEMMs.
#pragma once

#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm80 {

// `gated`: silu(gate) * up of the product's halves goes to out. The norm, where there is one, is one that the
// kernel does.
SkinnyGemmParams skinny_gemm_params(const LinearArgs& args, bool gated);
// `dtype`: of x and the weight, bf16 or f16. `stream`: a cudaStream_t. Throws Error(kDevice) when the launch
// fails.
void launch_skinny_gemm(const SkinnyGemmParams& params, DType dtype, void* stream);
// The same of a quantized weight.
SkinnyQuantizedParams skinny_quantized_params(const LinearArgs& args, bool gated);
void launch_skinny_quantized(const SkinnyQuantizedParams& params, DType dtype, void* stream);

}  // namespace attend::kernels::cuda::sm80
