#include "attend/kernels/moe/cuda/sm80/quantised_grouped_gemm.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_quantised_grouped_gemm_bf16(const GroupedGemmParams& params, int tile_rows, void* stream) {
  launch_quantised_grouped_gemm<__nv_bfloat16>(params, tile_rows, stream);
}

}  // namespace attend::kernels::cuda::sm80
