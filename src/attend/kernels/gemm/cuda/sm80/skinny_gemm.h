// Launches the skinny GEMMs.
#pragma once

#include "attend/kernels/gemm/cuda/sm80/skinny_codes_kernel.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm80 {

// `gated`: silu(gate) * up of the product's halves goes to out. The norm, where there is one, is one that the
// kernel does.
SkinnyGemmParams skinny_gemm_params(const LinearArgs& args, bool gated);
// `dtype`: of x and the weight, bf16 or f16. `stream`: a cudaStream_t. Throws Error(kDevice) when the launch
// fails.
void launch_skinny_gemm(const SkinnyGemmParams& params, DType dtype, void* stream);
// The same of a quantised weight.
SkinnyCodesParams skinny_codes_params(const LinearArgs& args, bool gated);
void launch_skinny_codes(const SkinnyCodesParams& params, DType dtype, void* stream);

}  // namespace attend::kernels::cuda::sm80
