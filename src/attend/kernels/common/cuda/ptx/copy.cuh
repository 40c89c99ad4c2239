// Asynchronous copies from global to shared memory: PTX ISA, "cp.async" (sm_80).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Returns the address of `pointer` in the shared window.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, bypassing L1. If `valid` is false, writes 16 zero bytes and reads nothing. "cp.async".
__device__ inline void cp_async_16(uint32_t to_shared, const void* from_global, bool valid) {
  const int num_bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to_shared), "l"(from_global),
               "r"(num_bytes)
               : "memory");
}

__device__ inline void cp_async_16(uint32_t to_shared, const void* from_global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to_shared), "l"(from_global) : "memory");
}

// Like cp_async_16 for data that is read once: L2 evicts it first. "cp.async" with ".L2::cache_hint".
//
// Use with care: if ptxas 13.0 keeps a part of `to_shared` in a uniform register, it can encode wrong
// registers in the instruction (sm_90: "LDGSTS [R5+UR0], desc[UR1]", where both are uninitialized). The bug
// is visible only in the machine code, which scripts/check_copies.py checks, and at run time.
__device__ inline void cp_async_16_evict_first(uint32_t to_shared, const void* from_global) {
  // Result of "createpolicy.fractional.L2::evict_first". As a constant it needs no instruction per copy.
  constexpr uint64_t kEvictFirst = 0x12f0000000000000;
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\n" ::"r"(to_shared),
               "l"(from_global), "l"(kEvictFirst)
               : "memory");
}

// Loads 16 bytes of shared memory. "ld.shared".
__device__ inline uint4 ld_shared_16(uint32_t from) {
  uint4 bits;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "r"(from)
               : "memory");
  return bits;
}

// Stores 16 bytes to shared memory. "st.shared".
__device__ inline void st_shared_16(uint32_t to, const uint4& bits) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(bits.x), "r"(bits.y), "r"(bits.z),
               "r"(bits.w)
               : "memory");
}
__device__ inline void st_shared_16(uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// Ends a group of copies. "cp.async.commit_group".
__device__ inline void cp_async_commit_group() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most `kPending` of this thread's newest groups are in flight. "cp.async.wait_group".
template <int kPending>
__device__ inline void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Makes this thread's earlier accesses of shared memory visible to the async proxy: to wgmma and TMA.
// "fence.proxy.async" (sm_90).
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

}  // namespace attend::kernels::cuda::ptx
