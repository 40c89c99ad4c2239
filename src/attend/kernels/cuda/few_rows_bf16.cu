#include "attend/kernels/cuda/few_rows_kernel.cuh"

namespace attend::kernels::cuda {
namespace {

int attribute_of_current_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  attend::cuda::check(cudaGetDevice(&device), "device");
  attend::cuda::check(cudaDeviceGetAttribute(&value, attribute, device), "device attribute");
  return value;
}

}  // namespace

int num_sms() { return attribute_of_current_device(cudaDevAttrMultiProcessorCount); }

int max_few_rows() {
  return attribute_of_current_device(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= kLargeSharedBytes
             ? kMaxRowsWithRoom
             : kMaxRowsAnywhere;
}

void launch_few_rows_bf16(const FewRowsParams& params, void* stream) {
  launch_rows<__nv_bfloat16>(params, stream);
}

}  // namespace attend::kernels::cuda
