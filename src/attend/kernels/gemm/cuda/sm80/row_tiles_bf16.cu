#include "attend/kernels/gemm/cuda/sm80/row_tiles_kernel.cuh"

namespace attend::kernels::cuda {

void launch_row_tiles_bf16(const RowTilesParams& params, void* stream) {
  launch_row_tiles<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda
