// Global memory: PTX ISA, "st".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// To global memory in one instruction, in which the compiler's own stores of 16 bytes may end as four.
// "st.global.v4.f32".
__device__ inline void st_global_16(float* to, float a, float b, float c, float d) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

}  // namespace attend::kernels::cuda::ptx
