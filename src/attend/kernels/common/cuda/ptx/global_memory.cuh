// Accesses of global memory that C++ cannot express: PTX ISA, "ld", "st", "prefetch", "createpolicy" (sm_80)
// and "cp.async.bulk.prefetch" (sm_90).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Loads 16 bytes from L2, bypassing L1. If `valid` is false, returns zeros and reads nothing. "ld.global.cg".
__device__ inline uint4 ld_global_16_past_l1(uint64_t from, bool valid) {
  uint4 bits;
  asm volatile(
      "{\n.reg .pred valid;\nsetp.ne.s32 valid, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@valid ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "=&r"(bits.x), "=&r"(bits.y), "=&r"(bits.z), "=&r"(bits.w)
      : "l"(from), "r"(static_cast<int>(valid))
      : "memory");
  return bits;
}

// Loads 16 bytes with an L2 policy (createpolicy). No running kernel may write them. "ld.global.nc".
__device__ inline uint4 ld_global_16_by_policy(const void* from, uint64_t policy) {
  uint4 bits;
  asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(from), "l"(policy));
  return bits;
}

// Prefetches bytes to L2; their number and the address are multiples of 16. "cp.async.bulk.prefetch.L2".
__device__ inline void cp_async_bulk_prefetch_l2(uint64_t from, uint32_t num_bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from), "r"(num_bytes) : "memory");
}

// Stores 16 bytes to global memory in one instruction; the compiler may split a C++ store into four.
// "st.global.v4.f32".
__device__ inline void st_global_16(float* to, float a, float b, float c, float d) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

// Prefetches a cache line to L2. "prefetch.global.L2".
__device__ inline void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from) : "memory");
}

// Returns a policy for data that is read once: L2 evicts it first. "createpolicy.fractional.L2::evict_first".
__device__ inline uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}
// Returns a policy for data that other CTAs read too: L2 evicts it last.
// "createpolicy.fractional.L2::evict_last".
__device__ inline uint64_t createpolicy_evict_last() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

}  // namespace attend::kernels::cuda::ptx
