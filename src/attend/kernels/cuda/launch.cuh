// Launching a kernel that may start before the one before it has ended.
#pragma once

#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {

// Launches `kernel(params)` with programmatic dependent launch (CUDA programming guide, "Programmatic
// Dependent Launch and Synchronization"): it must call ptx::wait_for_previous_kernel() before it touches what
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
