#include "attend/kernels/gemm/cuda/sm80/head_gemm.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_head_gemm_bf16(const HeadLinearParams& params, void* stream) {
  launch_head_gemm<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
