#include "attend/kernels/moe/cuda/sm80/direct_experts.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_direct_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  launch_direct_experts(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
