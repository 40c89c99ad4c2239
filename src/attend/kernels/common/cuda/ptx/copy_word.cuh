// Copies, loads and stores of words of shared memory: PTX ISA, "cp.async" (sm_80), "ld.shared" and
// "st.shared".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Copies 4 bytes. "cp.async".
__device__ inline void cp_async_4(uint32_t to_shared, const void* from_global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to_shared), "l"(from_global) : "memory");
}

// Copies the first `num_bytes` of 4 bytes; the others are 0.
__device__ inline void cp_async_4(uint32_t to_shared, const void* from_global, int num_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to_shared), "l"(from_global),
               "r"(num_bytes)
               : "memory");
}

// Loads a byte of shared memory. "ld.shared".
__device__ inline uint32_t ld_shared_1(uint32_t from) {
  uint32_t byte;
  asm volatile("ld.shared.u8 %0, [%1];\n" : "=r"(byte) : "r"(from) : "memory");
  return byte;
}

// Loads 4 bytes of shared memory. "ld.shared".
__device__ inline uint32_t ld_shared_4(uint32_t from) {
  uint32_t bits;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(bits) : "r"(from) : "memory");
  return bits;
}

// Loads 8 bytes of shared memory. "ld.shared".
__device__ inline float2 ld_shared_8(uint32_t from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(pair.x), "=f"(pair.y) : "r"(from) : "memory");
  return pair;
}

// Stores 4 bytes. "st.shared".
__device__ inline void st_shared_4(uint32_t to, uint32_t bits) {
  asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to), "r"(bits) : "memory");
}

// Stores 4 bytes. "st.shared".
__device__ inline void st_shared_4(uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(to), "f"(value) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
