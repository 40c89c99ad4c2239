// Clusters of CTAs, which can access each other's shared memory: PTX ISA, "%cluster_ctarank",
// "barrier.cluster", "mapa" (sm_90). Before sm_90 each CTA is its own cluster.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Rank of the CTA in its cluster. "%cluster_ctarank".
__device__ inline int cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}

// Index of the cluster in a one-dimensional grid. "%clusterid".
__device__ inline int cluster_id() {
  uint32_t id = blockIdx.x;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%clusterid.x;\n" : "=r"(id));
#endif
  return static_cast<int>(id);
}

// Number of CTAs of the cluster. "%cluster_nctarank".
__device__ inline int cluster_size() {
  uint32_t size = 1;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_nctarank;\n" : "=r"(size));
#endif
  return static_cast<int>(size);
}

// Arrives at the cluster barrier. The thread's earlier writes to shared memory are visible to threads of the
// cluster after cluster_wait(). Called by all threads of a warp. "barrier.cluster.arrive".
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
#endif
}

// Like cluster_arrive(), without making writes visible. "barrier.cluster.arrive.relaxed".
__device__ inline void cluster_arrive_relaxed() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
#endif
}

// Waits until all threads of the cluster have arrived. Called by all threads of a warp.
// "barrier.cluster.wait".
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#else
  __syncthreads();
#endif
}

// Returns the address in CTA `rank` that corresponds to `shared_address` in this one. "mapa".
__device__ inline uint32_t mapa(uint32_t shared_address, int rank) {
#if __CUDA_ARCH__ >= 900
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
#else
  return shared_address;
#endif
}

// Loads 8 bytes of the shared memory of any CTA of the cluster. "ld.shared::cluster".
__device__ inline uint64_t ld_shared_cluster(uint32_t address) {
  uint64_t bits;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.u64 %0, [%1];\n" : "=l"(bits) : "r"(address) : "memory");
#else
  asm volatile("ld.shared.u64 %0, [%1];\n" : "=l"(bits) : "r"(address) : "memory");
#endif
  return bits;
}

// Stores to the shared memory of any CTA of the cluster. "st.shared::cluster".
__device__ inline void st_shared_cluster(uint32_t address, float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.f32 [%0], %1;\n" ::"r"(address), "f"(value) : "memory");
#else
  asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(address), "f"(value) : "memory");
#endif
}
__device__ inline void st_shared_cluster(uint32_t address, float2 pair) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};\n" ::"r"(address), "f"(pair.x), "f"(pair.y)
               : "memory");
#else
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(address), "f"(pair.x), "f"(pair.y) : "memory");
#endif
}
__device__ inline void st_shared_cluster(uint32_t address, float4 four) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "f"(four.x), "f"(four.y),
               "f"(four.z), "f"(four.w)
               : "memory");
#else
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "f"(four.x), "f"(four.y),
               "f"(four.z), "f"(four.w)
               : "memory");
#endif
}

}  // namespace attend::kernels::cuda::ptx
