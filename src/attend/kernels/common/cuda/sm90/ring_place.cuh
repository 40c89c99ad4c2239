// Where a copier or a consumer stands in a ring of slots of shared memory.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::sm90 {

// Each turn round flips the parity of the phases of its barriers.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int num_slots) {
    if (++slot < num_slots) return;
    slot = 0;
    parity ^= 1;
  }
};

}  // namespace attend::kernels::cuda::sm90
