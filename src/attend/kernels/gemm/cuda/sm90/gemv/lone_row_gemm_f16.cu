#include "attend/kernels/gemm/cuda/sm90/gemv/lone_row_gemm.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_lone_row_gemm_f16(const LoneRowGemmParams& params, void* stream) {
  launch_lone_row_gemm<__half>(params, stream);
}

}  // namespace attend::kernels::cuda::sm90
