// Conversion of fp8 to f16 in registers. Exact: f16 represents every value of both formats.
#pragma once

#include <cuda_fp8.h>

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

// Converts the two low bytes of `word` to two f16 values.
template <Element kElement>
__device__ inline uint32_t low_pair(uint32_t word) {
  // e5m2 is the upper byte of f16.
  if constexpr (kElement == Element::kF8E5M2) return __byte_perm(word, 0, 0x1404);
#if __CUDA_ARCH__ >= 890
  const __half2_raw pair =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word & 0xffffu), __NV_E4M3);
  return static_cast<uint32_t>(pair.x) | static_cast<uint32_t>(pair.y) << 16;
#else
  // e4m3 has one exponent bit less, with a bias that is 8 less: placed directly below the sign, a value is
  // 2^8 too small.
  const uint32_t spread = __byte_perm(word, 0, 0x1404);
  const uint32_t magnitude = spread >> 1 & 0x3f803f80u;
  const uint32_t shifted = magnitude | (spread & 0x80008000u);
  const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&shifted), __float2half2_rn(256.0f));
  // All ones is NaN.
  const uint32_t nan = __heq2_mask(*reinterpret_cast<const __half2*>(&magnitude), __float2half2_rn(1.875f));
  return *reinterpret_cast<const uint32_t*>(&value) | nan;
#endif
}

// Converts the two high bytes.
template <Element kElement>
__device__ inline uint32_t high_pair(uint32_t word) {
  if constexpr (kElement == Element::kF8E5M2) return __byte_perm(word, 0, 0x3424);
  return low_pair<kElement>(word >> 16);
}

// Converted bytes 0 and 2, and bytes 1 and 3.
struct EvenOdd {
  uint32_t even, odd;
};
template <Element kElement>
__device__ inline EvenOdd even_odd_pairs(uint32_t word) {
  if constexpr (kElement == Element::kF8E5M2)
    return {__byte_perm(word, 0, 0x2404), __byte_perm(word, 0, 0x3414)};
  const uint32_t sorted = __byte_perm(word, 0, 0x3120);
  return {low_pair<kElement>(sorted), high_pair<kElement>(sorted)};
}

}  // namespace attend::kernels::cuda
