#include "attend/kernels/moe/cuda/sm80/lone_token_experts.cuh"

namespace attend::kernels::cuda {

void launch_lone_token_experts_f16(const SkinnyExpertsParams& params, void* stream) {
  launch_lone_token_experts<__half, LonePlainRows<__half>>(params, stream);
}

void launch_lone_token_mlp_f16(const LoneTokenMlpParams& params, void* stream) {
  launch_lone_token_mlp<__half, LonePlainRows<__half>>(params, stream);
}

}  // namespace attend::kernels::cuda
