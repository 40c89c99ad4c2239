#include "attend/kernels/moe/cuda/sm80/lone_token_experts.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_lone_token_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  launch_lone_token_experts<__nv_bfloat16, LonePlainRows<__nv_bfloat16>>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
