// Words of shared memory, copied and read: PTX ISA, "cp.async" (sm_80) and "ld.shared".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Copies 4 bytes. "cp.async".
__device__ inline void cp_async_4(uint32_t to_shared, const void* from_global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to_shared), "l"(from_global) : "memory");
}

// 4 bytes of shared memory. "ld.shared".
__device__ inline uint32_t ld_shared_4(uint32_t from) {
  uint32_t bits;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(bits) : "r"(from) : "memory");
  return bits;
}

// "st.shared".
__device__ inline void st_shared_4(uint32_t to, uint32_t bits) {
  asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to), "r"(bits) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
