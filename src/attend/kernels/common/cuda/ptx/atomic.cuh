// Atomics, loads and stores that order other accesses: PTX ISA, "atom", "ld", "st" (.acq_rel and so on:
// sm_70).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Adds to a number in global memory and returns what it was. What this thread has written or, by a barrier,
// seen written comes before; who sees the sum so sees it, and what this thread reads next comes after what
// former adders have written. "atom.add.acq_rel.gpu".
__device__ inline int32_t atom_add_acq_rel(int32_t* to, int32_t value) {
  int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;\n"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}

// Replaces a number in global memory that is `expected`; returns what it was. "atom.cas.relaxed.gpu".
__device__ inline uint32_t atom_cas(uint32_t* at, uint32_t expected, uint32_t value) {
  uint32_t before;
  asm volatile("atom.cas.relaxed.gpu.global.b32 %0, [%1], %2, %3;\n"
               : "=r"(before)
               : "l"(at), "r"(expected), "r"(value)
               : "memory");
  return before;
}

// What this thread reads next comes after what they had written who wrote the number. "ld.acquire.gpu".
__device__ inline uint32_t ld_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// What this thread has written or, by a barrier, seen written comes before. "st.release.gpu".
__device__ inline void st_release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;\n" ::"l"(to), "r"(value) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
