// Atomics that order other accesses: PTX ISA, "atom" (.acq_rel: sm_70).
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

// What its writer has written before is seen by what this thread reads next. "ld.acquire.gpu".
__device__ inline int32_t load_acquire(const int32_t* from) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(value) : "l"(from) : "memory");
  return value;
}

}  // namespace attend::kernels::cuda::ptx
