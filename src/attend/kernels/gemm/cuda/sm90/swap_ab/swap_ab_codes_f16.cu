#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_codes.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_swap_ab_codes_f16(const SwapAbCodesParams& params, const SwapAbGemmShape& shape, void* stream) {
  launch_swap_ab_codes<__half>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
