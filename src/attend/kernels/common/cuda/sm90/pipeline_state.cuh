// Where a producer or a consumer stands in a pipeline of stages of shared memory.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::sm90 {

// `parity`: of the phase of the stage's mbarriers; it flips each time round.
struct PipelineState {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int num_stages) {
    if (++stage < num_stages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace attend::kernels::cuda::sm90
