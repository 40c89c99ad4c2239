// Conversions to fp8: PTX ISA, "cvt" (sm_89).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Converts four floats to e4m3 bytes, `a` the lowest, rounded to nearest even and saturated to +-448.
// "cvt.rn.satfinite.e4m3x2.f32".
__device__ inline uint32_t cvt_e4m3x4(float a, float b, float c, float d) {
  uint32_t bytes;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(bytes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return bytes;
}

}  // namespace attend::kernels::cuda::ptx
