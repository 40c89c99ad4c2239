// Launching a kernel that may start before the one before it has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {

// Lets kKernel take up to `num_bytes` of dynamic shared memory on the current device: always the same number
// on one device, the most of any launch, since another thread may be about to launch with more than this one.
// The driver is asked once for each device: that takes as long as a tenth of a launch.
template <auto kKernel>
void allow_shared_memory(int num_bytes, std::string_view what) {
  static std::atomic<uint64_t> allowed_on{0};  // a bit for each of the first 64 devices
  int device = 0;
  attend::cuda::check(cudaGetDevice(&device), what);
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((allowed_on & bit) != 0) return;
  attend::cuda::check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes),
                      what);
  allowed_on |= bit;
}

// Launches `kernel(params)` with programmatic dependent launch (CUDA programming guide, "Programmatic
// Dependent Launch and Synchronization"): it must call ptx::griddepcontrol_wait() before it touches what
// another kernel writes. `cluster_size` CTAs after one another form a cluster (sm_90). `stream` is a
// cudaStream_t. Throws Error(kDevice) when the launch fails.
template <class Params>
void launch_dependent(void (*kernel)(Params), dim3 grid, int num_threads, size_t shared_bytes, void* stream,
                      const Params& params, const char* what, int cluster_size = 1) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {.x = static_cast<unsigned>(cluster_size), .y = 1, .z = 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(num_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = cluster_size > 1 ? 2 : 1;
  attend::cuda::check(cudaLaunchKernelEx(&config, kernel, params), what);
}

}  // namespace attend::kernels::cuda
