#include "attend/kernels/common/cuda/gpu_facts.h"

#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

std::vector<GpuFacts> all_gpu_facts() {
  std::vector<GpuFacts> all;
  for (int device = 0; device < attend::cuda::device_count(); ++device)
    all.push_back({.major = device_attribute(device, cudaDevAttrComputeCapabilityMajor),
                   .minor = device_attribute(device, cudaDevAttrComputeCapabilityMinor),
                   .num_sms = device_attribute(device, cudaDevAttrMultiProcessorCount),
                   .shared_bytes = device_attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin),
                   .has_sm90a = ATTEND_HAS_SM90A});
  return all;
}

}  // namespace

const GpuFacts& gpu_facts(Device device) {
  static const std::vector<GpuFacts> all = all_gpu_facts();
  ensure(device.index >= 0 && device.index < static_cast<int>(all.size()), "no GPU with index ",
         device.index);
  return all[static_cast<size_t>(device.index)];
}

}  // namespace attend::kernels::cuda
