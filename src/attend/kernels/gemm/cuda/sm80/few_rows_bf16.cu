#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/gemm/cuda/sm80/few_rows_kernel.cuh"

namespace attend::kernels::cuda {
int num_sms() { return current_device_attribute(cudaDevAttrMultiProcessorCount); }

int max_few_rows() { return max_few_rows(current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)); }

void launch_few_rows_bf16(const FewRowsParams& params, void* stream) {
  launch_rows<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda
