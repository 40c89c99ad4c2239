// Copies of bytes in a row by TMA: PTX ISA, "cp.async.bulk" (sm_90).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// To shared memory: a multiple of 16 bytes, as both addresses are. `barrier` counts them. "cp.async.bulk".
__device__ inline void cp_async_bulk(uint32_t to_shared, const void* from, uint32_t num_bytes,
                                     uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
          to_shared),
      "l"(from), "r"(num_bytes), "r"(barrier)
      : "memory");
}

}  // namespace attend::kernels::cuda::ptx
