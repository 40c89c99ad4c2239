// What a build that has no GPU kernels says when it is asked for a GPU.
#pragma once

namespace attend {

inline constexpr const char* kWithoutCuda =
    "this build was made without CUDA; one with it: cmake --preset cuda (or -DATTEND_CUDA=ON), which needs "
    "nvcc";

}  // namespace attend
