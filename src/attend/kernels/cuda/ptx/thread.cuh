// Threads of a CTA: PTX ISA, "%tid" and "bar".
#pragma once

namespace attend::kernels::cuda::ptx {

// threadIdx.x, read anew at every call: what depends on it is computed where it is needed, instead of being
// kept in registers through a loop before it. "mov".
__device__ inline int fresh_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(thread));
  return thread;
}

// Waits for `kThreads` threads at this named barrier (1 to 15; 0 is __syncthreads()). "bar.sync".
template <int kBarrier, int kThreads>
__device__ inline void synchronize_threads() {
  asm volatile("bar.sync %0, %1;\n" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
