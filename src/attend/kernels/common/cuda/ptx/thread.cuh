// Special registers: PTX ISA, "%tid".
#pragma once

namespace attend::kernels::cuda::ptx {

// threadIdx.x, read anew at every call: what depends on it is computed where it is needed, instead of being
// kept in registers through a loop before it. "mov".
__device__ inline int tid_x() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(thread));
  return thread;
}

}  // namespace attend::kernels::cuda::ptx
