// Launch of a kernel that may start before the previous one has finished.
#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {

// Allows kKernel up to `num_bytes` of dynamic shared memory on the current device. Always call it with the
// maximum of all launches on a device, since another thread may be about to launch with more than this one
// needs. The driver is called once per device, because a call takes a tenth of a launch.
template <auto kKernel>
void allow_shared_memory(int num_bytes, std::string_view what) {
  static std::atomic<uint64_t> allowed_on{0};  // one bit for each of the first 64 devices
  int device = 0;
  attend::cuda::check(cudaGetDevice(&device), what);
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((allowed_on & bit) != 0) return;
  attend::cuda::check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes),
                      what);
  allowed_on |= bit;
}

// Shared-memory carveouts of sm_90: an SM divides its 256 KB between shared memory and L1.
inline constexpr int kSharedCarveoutSizes[] = {0,         8 << 10,   16 << 10,  32 << 10,  64 << 10,
                                               100 << 10, 132 << 10, 164 << 10, 196 << 10, 228 << 10};
// Returns the smallest carveout for `num_ctas` CTAs of `shared_bytes` each.
constexpr int shared_for(int num_ctas, int shared_bytes) {
  constexpr int kReserved = 1 << 10;  // reserved per CTA
  for (const int bytes : kSharedCarveoutSizes)
    if (num_ctas * (shared_bytes + kReserved) <= bytes) return bytes;
  return kSharedCarveoutSizes[std::size(kSharedCarveoutSizes) - 1];
}

// Launches `kernel(params)` with programmatic dependent launch (CUDA programming guide, "Programmatic
// Dependent Launch and Synchronization"): the kernel must call ptx::griddepcontrol_wait() before it accesses
// data that another kernel writes. `cluster_size` consecutive CTAs form a cluster (sm_90). `shared_carveout`:
// one of kSharedCarveoutSizes, or 0 for the driver's default. `stream` is a cudaStream_t. Throws
// Error(kDevice) if the launch fails.
template <class Params>
void launch_dependent(void (*kernel)(Params), dim3 grid, int num_threads, size_t shared_bytes, void* stream,
                      const Params& params, const char* what, int cluster_size = 1,
                      [[maybe_unused]] int shared_carveout = 0) {
  cudaLaunchAttribute attributes[3]{};
  unsigned num_attributes = 0;
  const auto next = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
    attributes[num_attributes].id = id;
    return attributes[num_attributes++].val;
  };
  next(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed = 1;
  if (cluster_size > 1)
    next(cudaLaunchAttributeClusterDimension).clusterDim = {
        .x = static_cast<unsigned>(cluster_size), .y = 1, .z = 1};
// Toolkits before 12.8 may lack the attribute, which only affects speed.
#if CUDART_VERSION >= 12080
  if (shared_carveout > 0) {
    // In percent, rounded down: the driver rounds fractions above up to the next size.
    constexpr int kMost = kSharedCarveoutSizes[std::size(kSharedCarveoutSizes) - 1];
    next(cudaLaunchAttributePreferredSharedMemoryCarveout).sharedMemCarveout =
        static_cast<unsigned>(100 * shared_carveout / kMost);
  }
#endif
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(num_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  attend::cuda::check(cudaLaunchKernelEx(&config, kernel, params), what);
}

}  // namespace attend::kernels::cuda
