// Synchronization of warpgroup tensor-core instructions: PTX ISA, "wgmma" (sm_90a). wgmma_mma_async() is
// generated for the sizes in use (wgmma_products.cuh.in).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Returns the shared-memory descriptor of a K-major operand with rows of 128 bytes in the 128-byte swizzle;
// eight rows have 1024 bytes and start at a multiple of 1024. PTX ISA, "Matrix descriptor": address / 16 in
// bits 0 to 13, bytes between groups of eight rows / 16 in bits 32 to 45, swizzle mode in bits 62 and 63 (1:
// 128 bytes). Adding bytes / 16 advances along the rows.
__device__ inline uint64_t smem_descriptor(uint32_t shared) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  return (uint64_t{shared} & 0x3ffff) >> 4 | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

// Returns the descriptor of an MN-major operand B: its rows in memory, 128 bytes of up to 64 columns each,
// are along K, and columns from 64 on are `to_next_columns` bytes further. PTX ISA, "Matrix descriptor" and
// "Strides" for MN-major operands: that distance / 16 in bits 16 to 29, bytes between groups of eight rows /
// 16 in bits 32 to 45. Adding bytes / 16 advances along K.
__device__ inline uint64_t smem_descriptor_mn_major(uint32_t shared, uint32_t to_next_columns) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  return (uint64_t{shared} & 0x3ffff) >> 4 | uint64_t{to_next_columns / 16} << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

// Required before the first wgmma_mma_async(), and after registers of accumulators or operands were accessed.
// "wgmma.fence".
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

// Ends a group of wgmma_mma_async(). "wgmma.commit_group".
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until at most `kPending` of the newest groups are in flight. "wgmma.wait_group".
template <int kPending>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Compiler barrier: later reads of `accumulators` are not moved before earlier waits. The compiler cannot see
// that the tensor cores write them asynchronously.
template <int kCount>
__device__ __forceinline__ void fence_operand(float (&accumulators)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}

}  // namespace attend::kernels::cuda::ptx
