// Barriers of a CTA that different roles of warps use at different places: PTX ISA, "bar.sync" and
// "bar.arrive" (sm_80). `barrier` is 1 to 15, since 0 is that of __syncthreads(); `num_threads` counts
// threads of whole warps that wait or arrive.
#pragma once

namespace attend::kernels::cuda::ptx {

// Waits until all threads have waited or arrived. Their earlier accesses of memory are visible. "bar.sync".
__device__ inline void bar_sync(int barrier, int num_threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}

// Arrives without waiting. "bar.arrive".
__device__ inline void bar_arrive(int barrier, int num_threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
