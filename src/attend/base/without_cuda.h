// Error message of builds without GPU kernels if a GPU is requested.
#pragma once

namespace attend {

inline constexpr const char* kWithoutCuda =
    "this build was made without CUDA; one with it: cmake --preset cuda (or -DATTEND_CUDA=ON), which needs "
    "nvcc";

}  // namespace attend
