// Position of a producer or a consumer in a pipeline of stages of shared memory.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::sm90 {

// `parity`: phase parity of the stage's mbarriers; it flips each time the stages wrap around.
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
