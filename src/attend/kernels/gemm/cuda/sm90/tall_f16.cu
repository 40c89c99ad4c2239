#include "attend/kernels/gemm/cuda/sm90/tall_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_tall_f16(const TallParams& params, const TallShape& shape, void* stream) {
  launch_tall<__half>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
