// Power-of-two scales of one byte (e8m0).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// Returns 2^(bits - 127) for bits below 255 (NaN). The result for 0 is subnormal.
__device__ __forceinline__ float e8m0_to_float(uint32_t bits) {
  return __uint_as_float(bits == 0 ? 0x00400000u : bits << 23);
}

}  // namespace attend::kernels::cuda
