#include "attend/kernels/moe/cuda/sm80/lone_token_experts.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_lone_token_experts_f16(const SkinnyExpertsParams& params, void* stream) {
  launch_lone_token_experts<__half, LonePlainRows<__half>>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
