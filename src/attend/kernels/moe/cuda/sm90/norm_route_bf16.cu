#include "attend/kernels/moe/cuda/sm90/norm_route.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_norm_route_bf16(const NormRouteParams& params, void* stream) {
  launch_norm_route<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda::sm90
