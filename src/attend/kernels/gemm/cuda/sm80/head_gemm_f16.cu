#include "attend/kernels/gemm/cuda/sm80/head_gemm.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_head_gemm_f16(const HeadLinearParams& params, void* stream) {
  launch_head_gemm<__half>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
