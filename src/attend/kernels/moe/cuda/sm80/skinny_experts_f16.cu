#include "attend/kernels/moe/cuda/sm80/skinny_experts.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_skinny_experts_f16(const SkinnyExpertsParams& params, void* stream) {
  // Of so few pairs both products' CTAs fit an SM: the second ones wait there with W.
  params.num_tokens* params.top_k <= kVeryFewPairs
      ? launch_skinny_tiles<__half, PlainBlocks, kVeryFewPairs, 2, 3>(params, stream)
      : launch_skinny_tiles<__half, PlainBlocks, kMaxSkinnyPairs, 4, 6>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
