// Scales that are powers of two, a byte each.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// 2^(bits - 127), bits below 255 (NaN): below 2^-126 no exponent is left.
__device__ __forceinline__ float e8m0_to_float(uint32_t bits) {
  return __uint_as_float(bits == 0 ? 0x00400000u : bits << 23);
}

}  // namespace attend::kernels::cuda
