// Reciprocals: PTX ISA, "rcp".
#pragma once

namespace attend::kernels::cuda::ptx {

// 1 / x with a relative error of about 2^-23. "rcp.approx.ftz.f32".
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attend::kernels::cuda::ptx
