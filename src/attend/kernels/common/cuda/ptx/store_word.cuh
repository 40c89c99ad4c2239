// A word of shared memory, written: PTX ISA, "st.shared".
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Stores 4 bytes. "st.shared".
__device__ inline void st_shared_4(uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(to), "f"(value) : "memory");
}

}  // namespace attend::kernels::cuda::ptx
