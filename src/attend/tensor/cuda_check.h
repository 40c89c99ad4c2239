// Converts errors of the CUDA runtime to attend::Error. For sources that may include its headers.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace attend::cuda {

// Throws Error(kDevice) with CUDA's message unless `status` is success: "<what>: out of memory". Throws
// Error(kUnsupported) if the driver is missing or too old.
void check(cudaError_t status, std::string_view what);

}  // namespace attend::cuda
