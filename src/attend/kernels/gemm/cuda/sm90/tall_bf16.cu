#include "attend/kernels/gemm/cuda/sm90/tall_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_tall_bf16(const TallParams& params, const TallShape& shape, void* stream) {
  launch_tall<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
