// Launches of the skinny GEMMs.
#pragma once

#include "attend/kernels/gemm/cuda/sm80/skinny_quantized_kernel.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cuda::sm80 {

// Parameters for checked arguments. `gated`: out = silu(gate) * up of the product's halves. A norm, if there
// is one, is applied by the kernel.
SkinnyGemmParams skinny_gemm_params(const LinearArgs& args, bool gated);
// `dtype`: dtype of x and the weight, bf16 or f16. `stream`: a cudaStream_t. Throws Error(kDevice) if the
// launch fails.
void launch_skinny_gemm(const SkinnyGemmParams& params, DType dtype, void* stream);
// The same for a quantized weight.
SkinnyQuantizedParams skinny_quantized_params(const LinearArgs& args, bool gated);
void launch_skinny_quantized(const SkinnyQuantizedParams& params, DType dtype, void* stream);

}  // namespace attend::kernels::cuda::sm80
