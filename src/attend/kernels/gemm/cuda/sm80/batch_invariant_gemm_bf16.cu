#include "attend/kernels/gemm/cuda/sm80/batch_invariant_gemm.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_batch_invariant_gemm_bf16(const BatchInvariantGemmParams& params, void* stream) {
  launch_batch_invariant_gemm<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
