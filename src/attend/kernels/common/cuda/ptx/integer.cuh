// Integer arithmetic: PTX ISA, "mad.wide".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// a b + c in one instruction; the compiler makes five of the same in C++. "mad.wide.s32".
__device__ inline int64_t mad_wide(int32_t a, int32_t b, int64_t c) {
  int64_t sum;
  asm("mad.wide.s32 %0, %1, %2, %3;\n" : "=l"(sum) : "r"(a), "r"(b), "l"(c));
  return sum;
}

}  // namespace attend::kernels::cuda::ptx
