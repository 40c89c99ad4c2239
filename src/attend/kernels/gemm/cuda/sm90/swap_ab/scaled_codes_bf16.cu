#include "attend/kernels/gemm/cuda/sm90/swap_ab/scaled_codes.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_scaled_codes_bf16(const SwapAbCodesParams& params, const SwapAbGemmShape& shape, void* stream) {
  launch_scaled_codes<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
