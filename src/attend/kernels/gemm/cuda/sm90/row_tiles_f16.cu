#include "attend/kernels/gemm/cuda/sm90/row_tiles_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_row_tiles_f16(const RowTilesParams& params, const RowTileShape& shape, void* stream) {
  launch_row_tiles<__half>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
