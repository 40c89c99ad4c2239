// Where a thread stands in its warpgroup.
#pragma once

#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::ptx {

// Of the warp, and which warp of a warpgroup, read anew as tid_x() is. By masks: of what may be negative, as
// far as the compiler knows, divisions take five instructions.
__device__ inline int lane() { return tid_x() & 31; }
__device__ inline int warp_of_warpgroup() { return tid_x() >> 5 & 3; }

}  // namespace attend::kernels::cuda::ptx
