// Data exchange between CTAs of a cluster, and barriers that track its arrival: PTX ISA, "st.async" and
// "mbarrier" (sm_90). Addresses are in the shared window; mapa() returns those of other CTAs.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Stores 16 bytes; the barrier of the destination CTA counts them when they have arrived. "st.async".
__device__ inline void st_async_16(uint32_t to, float a, float b, float c, float d, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];\n" ::"r"(
          to),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}

// Arrives at a barrier of any CTA. Relaxed: may be reordered with earlier accesses of this thread, except for
// reads with values that were used. "mbarrier.arrive.relaxed.cluster".
__device__ inline void mbarrier_arrive_cluster_relaxed(uint32_t barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// Arrives at a barrier of any CTA, after earlier accesses of this thread. "mbarrier.arrive.release.cluster".
__device__ inline void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// "mbarrier.try_wait.acquire.cluster".
__device__ inline bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  asm volatile(
      "{\n.reg .pred ended;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait_cluster(barrier, parity)) {
  }
}

}  // namespace attend::kernels::cuda::ptx
