#include "attend/kernels/moe/cuda/sm80/lone_mxfp4_down.cuh"
#include "attend/kernels/moe/cuda/sm80/lone_token_experts.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_lone_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  if (!params.gated) return launch_lone_down(params, stream);
  launch_lone_token_product<__nv_bfloat16, LoneMxFp4Rows<3>, true>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
