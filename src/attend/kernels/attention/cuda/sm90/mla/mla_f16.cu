#include "attend/kernels/attention/cuda/sm90/mla/mla_launch.cuh"

namespace attend::kernels::cuda::sm90 {

void launch_mla_f16(const MlaParams& params, int num_ctas, void* stream) {
  launch_mla_of<__half>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
