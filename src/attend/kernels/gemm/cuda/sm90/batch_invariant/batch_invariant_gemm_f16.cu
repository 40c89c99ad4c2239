#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_batch_invariant_gemm_f16(const BatchInvariantGemmParams& params,
                                     const BatchInvariantGemmShape& shape, void* stream) {
  launch_batch_invariant_gemm<__half>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
