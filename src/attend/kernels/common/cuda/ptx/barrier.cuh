// Barriers of a CTA that different roles of warps use at different places: PTX ISA, "bar.sync" (sm_80).
#pragma once

namespace attend::kernels::cuda::ptx {

// Waits until `num_threads` threads, in whole warps, have called this with the same `barrier`, 1 to 15. Their
// earlier accesses of memory are visible to each other. "bar.sync".
__device__ inline void bar_sync(int barrier, int num_threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
