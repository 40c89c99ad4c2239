#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm.cuh"

namespace attend::kernels::cuda::sm80 {
int num_sms() { return current_device_attribute(cudaDevAttrMultiProcessorCount); }

int max_skinny_rows() {
  return max_skinny_rows(current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

void launch_skinny_gemm_bf16(const SkinnyGemmParams& params, void* stream) {
  launch_rows<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
