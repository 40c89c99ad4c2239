// Synchronization and registers of warp-specialized warpgroups: PTX ISA, "setmaxnreg" (sm_90a) and "barrier".
#pragma once

namespace attend::kernels::cuda::ptx {

// Reduces the warpgroup's registers per thread to kRegisters and releases the others. "setmaxnreg.dec".
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
// Waits for registers and increases the warpgroup's registers per thread to kRegisters. "setmaxnreg.inc".
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// Waits until `num_threads` threads have arrived at barrier `barrier` of the CTA, 1 to 15, here or with
// barrier_arrive(). Called by all threads of a warp. "barrier.sync".
__device__ __forceinline__ void barrier_sync(int barrier, int num_threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}
// Arrives without waiting. "barrier.arrive".
__device__ __forceinline__ void barrier_arrive(int barrier, int num_threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;\n" ::"r"(barrier), "r"(num_threads) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
