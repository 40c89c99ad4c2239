// Errors of the CUDA runtime as attend::Error. For sources that may include its headers only.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace attend::cuda {

// Throws Error(kDevice) with CUDA's text unless `status` is success: "<what>: out of memory";
// Error(kUnsupported) when it says that there is no driver, or too old a one.
void check(cudaError_t status, std::string_view what);

}  // namespace attend::cuda
