#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_gated_mlp_gemm_bf16(const GatedMlpGemmParams& params, const GatedMlpGemmShape& shape,
                                void* stream) {
  launch_gated_mlp_gemm<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
