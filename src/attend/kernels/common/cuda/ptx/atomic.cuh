// Atomics with memory ordering: PTX ISA, "atom" (.acq_rel: sm_70).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Adds to a value in global memory and returns the previous one. Release: earlier writes of this thread, and
// writes it has observed through a barrier, are visible to threads that observe the sum. Acquire: later reads
// of this thread observe the writes of earlier adders. "atom.add.acq_rel.gpu".
__device__ inline int32_t atom_add_acq_rel(int32_t* to, int32_t value) {
  int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;\n"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}

// Acquire load: later reads of this thread observe the writes that the value's writer released.
// "ld.acquire.gpu".
__device__ inline int32_t load_acquire(const int32_t* from) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(value) : "l"(from) : "memory");
  return value;
}

}  // namespace attend::kernels::cuda::ptx
