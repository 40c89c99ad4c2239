#include "attend/kernels/gemm/cuda/sm90/dense_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_dense_f16(const DenseParams& params, const DenseShape& shape, void* stream) {
  launch_dense<__half>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
