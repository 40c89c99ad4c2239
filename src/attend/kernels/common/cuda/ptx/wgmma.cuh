// What orders the tensor core instructions of warpgroups: PTX ISA, "wgmma" (sm_90a). wgmma_mma_async() itself
// is generated for the sizes in use (wgmma_products.cuh.in).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// The shared memory descriptor of a K-major operand whose rows are 128 bytes in the 128-byte swizzle; eight
// rows are 1024 bytes and begin at a multiple of that. PTX ISA, "Matrix descriptor": address / 16 in bits 0
// to 13, bytes from eight rows to the next / 16 in bits 32 to 45, kind of swizzling in bits 62 and 63 (1: 128
// bytes). Along the rows one goes on by adding bytes / 16.
__device__ inline uint64_t smem_descriptor(uint32_t shared) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  return (uint64_t{shared} & 0x3ffff) >> 4 | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

// The same of an MN-major operand B: its rows in memory, 128 bytes of up to 64 columns each, are along K, and
// the columns beyond 64 lie `to_next_columns` bytes further. PTX ISA, "Matrix descriptor" and "Strides" for
// MN-major operands: that distance / 16 in bits 16 to 29, bytes from eight rows to the next / 16 in bits 32
// to 45. Along the rows' sequence one goes on by adding bytes / 16.
__device__ inline uint64_t smem_descriptor_mn_major(uint32_t shared, uint32_t to_next_columns) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  return (uint64_t{shared} & 0x3ffff) >> 4 | uint64_t{to_next_columns / 16} << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

// Before the first wgmma_mma_async() and after accumulators or operands in registers were touched.
// "wgmma.fence".
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

// Ends a group of wgmma_mma_async(). "wgmma.commit_group".
__device__ inline void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until at most `kPending` of the newest groups are under way. "wgmma.wait_group".
template <int kPending>
__device__ inline void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// What is read of `accumulators` after this comes after the waits before it: for the compiler, which does not
// see that the tensor cores write them later.
template <int kCount>
__device__ __forceinline__ void fence_operand(float (&accumulators)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}

}  // namespace attend::kernels::cuda::ptx
