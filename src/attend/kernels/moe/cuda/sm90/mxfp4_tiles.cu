#include "attend/kernels/moe/cuda/sm90/mxfp4_tiles.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_mxfp4_tiles_bf16(const Mxfp4TilesParams& params, int num_ctas, void* stream) {
  params.product.gated ? launch_mxfp4_tiles_instance<true>(params, num_ctas, stream)
                       : launch_mxfp4_tiles_instance<false>(params, num_ctas, stream);
}

void launch_gather_inputs(const GatherInputsParams& params, void* stream) {
  launch_dependent<GatherInputsParams>(gather_inputs_kernel, dim3(static_cast<unsigned>(params.num_rows)),
                                       kGatherThreads, 0, stream, params, "moe_experts: inputs");
}

}  // namespace attend::kernels::cuda::sm90
