// Registers of one thread: PTX ISA, "%tid", "mad.wide" and "rcp".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Reads threadIdx.x at every call, so that derived values are computed at their use instead of being kept in
// registers through an earlier loop. "mov".
__device__ inline int tid_x() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(thread));
  return thread;
}

// Returns a value that all lanes share, in a form that the compiler may keep in a uniform register. Called by
// all lanes.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Lane in the warp, and warp in the warpgroup, read at every call like tid_x(). Uses masks, since divisions
// of values that the compiler considers signed need five instructions.
__device__ inline int lane() { return tid_x() & 31; }
__device__ inline int warp_in_warpgroup() { return tid_x() >> 5 & 3; }

// Returns a b + c in one instruction; the compiler emits five for the C++ expression. "mad.wide.s32".
__device__ inline int64_t mad_wide(int32_t a, int32_t b, int64_t c) {
  int64_t sum;
  asm("mad.wide.s32 %0, %1, %2, %3;\n" : "=l"(sum) : "r"(a), "r"(b), "l"(c));
  return sum;
}

// Returns 1 / x with a relative error of about 2^-23. "rcp.approx.ftz.f32".
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attend::kernels::cuda::ptx
