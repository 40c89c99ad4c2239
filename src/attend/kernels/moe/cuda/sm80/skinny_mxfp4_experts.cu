#include "attend/kernels/moe/cuda/sm80/skinny_experts.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_skinny_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  // Two CTAs per SM: dequantization needs more warps than one CTA has.
  launch_skinny_tiles<__nv_bfloat16, MxFp4Blocks, kMaxSkinnyMxFp4Pairs, 2, 2, /*kCtasPerSm=*/2>(params,
                                                                                                stream);
}

}  // namespace attend::kernels::cuda::sm80
