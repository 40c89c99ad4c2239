#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_skinny_gemm_f16(const SkinnyGemmParams& params, void* stream) {
  launch_rows<__half>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
