#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_swap_ab_gemm_f16(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream) {
  launch_swap_ab_gemm<__half>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
