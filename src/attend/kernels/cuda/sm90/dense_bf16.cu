#include "attend/kernels/cuda/sm90/dense_kernel.cuh"

namespace attend::kernels::cuda::sm90 {

int max_weight_slots(DenseShape shape) {
  return visit_dense_shape(
      shape, [](auto warpgroups, auto tokens) { return DenseRing<warpgroups(), tokens()>::kMaxWeightSlots; });
}

void launch_dense_bf16(const DenseParams& params, DenseShape shape, void* stream) {
  launch_dense<__nv_bfloat16>(params, shape, stream);
}

}  // namespace attend::kernels::cuda::sm90
