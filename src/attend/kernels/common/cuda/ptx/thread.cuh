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

// What all lanes have, so that the compiler knows it and may keep it in a uniform register. By all lanes.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

}  // namespace attend::kernels::cuda::ptx
