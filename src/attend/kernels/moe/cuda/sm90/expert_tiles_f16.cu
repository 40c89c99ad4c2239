#include "attend/kernels/moe/cuda/sm90/expert_tiles.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_expert_tiles_f16(const ExpertTilesParams& params, int num_ctas, void* stream) {
  launch_expert_tiles<__half>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
