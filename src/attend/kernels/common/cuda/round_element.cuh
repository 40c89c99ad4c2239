// Rounding of a value to an element type without memory accesses.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"

namespace attend::kernels::cuda {

// Returns the value after store_element() and load_element().
__device__ inline float round_element(float value, Element element) {
  const auto through_fp8 = [&](__nv_fp8_interpretation_t kind) {
    return from_fp8(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, kind), kind);
  };
  switch (element) {
    case Element::kF32:
      return value;
    case Element::kF16:
      return __half2float(__float2half_rn(value));
    case Element::kBF16:
      return __bfloat162float(__float2bfloat16_rn(value));
    case Element::kF8E4M3:
      return through_fp8(__NV_E4M3);
    case Element::kF8E5M2:
      return through_fp8(__NV_E5M2);
  }
  return 0.0f;
}

}  // namespace attend::kernels::cuda
