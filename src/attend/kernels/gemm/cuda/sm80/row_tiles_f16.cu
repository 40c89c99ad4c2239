#include "attend/kernels/gemm/cuda/sm80/row_tiles_kernel.cuh"

namespace attend::kernels::cuda {

void launch_row_tiles_f16(const RowTilesParams& params, void* stream) {
  launch_row_tiles<__half>(params, stream);
}

}  // namespace attend::kernels::cuda
