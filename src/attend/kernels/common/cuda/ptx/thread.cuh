// Registers of one thread: PTX ISA, "%tid", "mad.wide" and "rcp".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// threadIdx.x, read anew at every call: what depends on it is computed where it is needed, instead of being
// kept in registers through a loop before it. "mov".
__device__ inline int tid_x() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(thread));
  return thread;
}

// What all lanes have, so that the compiler knows it and may keep it in a uniform register. By all lanes.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Where a thread stands in its warpgroup.

// Of the warp, and which warp of a warpgroup, read anew as tid_x() is. By masks: of what may be negative, as
// far as the compiler knows, divisions take five instructions.
__device__ inline int lane() { return tid_x() & 31; }
__device__ inline int warp_of_warpgroup() { return tid_x() >> 5 & 3; }

// Integer arithmetic: PTX ISA, "mad.wide".

// a b + c in one instruction; the compiler makes five of the same in C++. "mad.wide.s32".
__device__ inline int64_t mad_wide(int32_t a, int32_t b, int64_t c) {
  int64_t sum;
  asm("mad.wide.s32 %0, %1, %2, %3;\n" : "=l"(sum) : "r"(a), "r"(b), "l"(c));
  return sum;
}

// Reciprocals: PTX ISA, "rcp".

// 1 / x with a relative error of about 2^-23. "rcp.approx.ftz.f32".
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attend::kernels::cuda::ptx
