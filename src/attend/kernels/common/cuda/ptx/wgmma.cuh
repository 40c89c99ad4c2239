// What orders the tensor core instructions of warpgroups: PTX ISA, "wgmma" (sm_90a). The products themselves,
// multiply_async(), are generated for the sizes in use (wgmma_products.cuh.in).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Of a matrix in shared memory whose rows are 128 bytes, swizzled as the copy engine does in its 128-byte
// mode; eight rows are 1024 bytes and begin at a multiple of that. PTX ISA, "Matrix descriptor": address / 16
// in bits 0 to 13, bytes from eight rows to the next / 16 in bits 32 to 45, kind of swizzling in bits 62 and
// 63 (1: 128 bytes). Along the rows one goes on by adding bytes / 16.
__device__ inline uint64_t matrix_descriptor(uint32_t shared) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  return (uint64_t{shared} & 0x3ffff) >> 4 | uint64_t{1} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}

// The same of the right operand of a product that wants it transposed: its rows in memory, 128 bytes of up to
// 64 columns each, are what the product sums over, and the columns beyond 64 lie `to_next_columns` bytes
// further. PTX ISA, "Matrix descriptor" and "Strides" for MN-major operands: that distance / 16 in bits 16 to
// 29, bytes from eight rows to the next / 16 in bits 32 to 45. Along the rows' sequence one goes on by adding
// bytes / 16.
__device__ inline uint64_t transposed_descriptor(uint32_t shared, uint32_t to_next_columns) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzle128 = 1;
  return (uint64_t{shared} & 0x3ffff) >> 4 | uint64_t{to_next_columns / 16} << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

// Before the first product and after registers of a sum were touched. "wgmma.fence".
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

// Ends a group of products. "wgmma.commit_group".
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

// Waits until at most `kPending` of the newest groups are under way. "wgmma.wait_group".
template <int kPending>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// What is read of `sums` after this comes after the waits before it: for the compiler, which does not see
// that products end later than they are written.
template <int kSums>
__device__ __forceinline__ void use_after_wait(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

}  // namespace attend::kernels::cuda::ptx
