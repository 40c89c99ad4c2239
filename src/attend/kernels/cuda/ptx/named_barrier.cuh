// Barriers of some of a CTA's warps: PTX ISA, "barrier.sync".
#pragma once

namespace attend::kernels::cuda::ptx {

// Waits until kThreads threads, whole warps, have come to barrier `idx`, 1 to 15. "bar.sync".
template <int kThreads>
__device__ inline void join_threads(int idx) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(idx), "n"(kThreads) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
