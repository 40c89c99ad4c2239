#include "attend/kernels/gemm/cuda/sm90/row_tiles_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_row_tiles_bf16(const RowTilesParams& params, const RowTileShape& shape, void* stream) {
  launch_row_tiles<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
