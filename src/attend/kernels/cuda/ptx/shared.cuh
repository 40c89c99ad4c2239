// Reading shared memory by its address in the shared window: PTX ISA, "ld.shared".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// 16 bytes of shared memory. "ld.shared".
__device__ inline uint4 load_shared_16(uint32_t from) {
  uint4 bits;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(from)
               : "memory");
  return bits;
}

}  // namespace attend::kernels::cuda::ptx
