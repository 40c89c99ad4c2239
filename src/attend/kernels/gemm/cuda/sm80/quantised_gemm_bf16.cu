#include "attend/kernels/gemm/cuda/sm80/quantised_linear.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_quantised_gemm_bf16(const QuantisedGemmParams& params, void* stream) {
  launch_quantised_gemm<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
