// Single attributes of a GPU, without querying all of them.
#pragma once

#include <cuda_runtime_api.h>

#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {

inline int device_attribute(int device_index, cudaDeviceAttr attribute) {
  int value = 0;
  attend::cuda::check(cudaDeviceGetAttribute(&value, attribute, device_index), "attribute of the device");
  return value;
}

// Returns an attribute of the current device, which launches use.
inline int current_device_attribute(cudaDeviceAttr attribute) {
  int device_index = 0;
  attend::cuda::check(cudaGetDevice(&device_index), "current device");
  return device_attribute(device_index, attribute);
}

inline int num_sms() { return current_device_attribute(cudaDevAttrMultiProcessorCount); }

}  // namespace attend::kernels::cuda
