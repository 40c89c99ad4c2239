// Barriers in shared memory that count arrivals and the bytes of asynchronous copies: PTX ISA, "mbarrier"
// (sm_90). Addresses are in the shared window.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Initializes a barrier. "mbarrier.init".
__device__ inline void mbarrier_init(uint32_t barrier, uint32_t num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(num_arrivals) : "memory");
}

// Makes initialized barriers visible to the cluster and to the async proxy. "fence.mbarrier_init".
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// Arrives once; the phase completes only after `num_bytes` more have arrived. "mbarrier.arrive.expect_tx".
__device__ inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(num_bytes)
               : "memory");
}

// Arrives once. "mbarrier.arrive".
__device__ inline void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// Delays the completion of the current phase until all earlier "cp.async" copies of this thread have
// finished. "cp.async.mbarrier.arrive".
__device__ inline void cp_async_mbarrier_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}

// Arrives once, after all earlier "cp.async" copies of this thread have finished.
// "cp.async.mbarrier.arrive.noinc".
__device__ inline void cp_async_mbarrier_arrive_noinc(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}

// Returns true if the phase of this parity has completed; blocks for a limited time. "mbarrier.try_wait".
__device__ inline bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  asm volatile(
      "{\n.reg .pred ended;\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

}  // namespace attend::kernels::cuda::ptx
