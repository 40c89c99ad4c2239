#include "attend/kernels/moe/cuda/sm90/mxfp4_tiles.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_mxfp4_tiles_bf16(const MxFp4TilesParams& params, int num_ctas, void* stream) {
  params.product.gated ? launch_mxfp4_tiles_instance<true>(params, num_ctas, stream)
                       : launch_mxfp4_tiles_instance<false>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
