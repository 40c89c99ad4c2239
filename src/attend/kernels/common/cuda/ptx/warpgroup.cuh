// What warp-specialized warpgroups want of one another: PTX ISA, "setmaxnreg" (sm_90a) and
// "barrier".
#pragma once

namespace attend::kernels::cuda::ptx {

// The warpgroup has at most so many registers a thread from here on, and others may take what that frees.
// "setmaxnreg.dec".
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
// The warpgroup waits for and has so many. "setmaxnreg.inc".
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// Barrier `barrier` of the CTA, 1 to 15, for `num_threads`: waits until so many have come to it, here or by
// barrier_arrive(). By all threads of a warp. "barrier.sync".
__device__ __forceinline__ void barrier_sync(int barrier, int num_threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}
// Comes to it and goes on. "barrier.arrive".
__device__ __forceinline__ void barrier_arrive(int barrier, int num_threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
