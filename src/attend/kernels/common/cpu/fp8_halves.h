// Conversion of fp8 to f16, which F16C converts to f32 while loading. With AVX2 the fastest conversion to
// float32 goes through memory; from registers it takes twice as long.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

// Converts 16 values to f16, divided by kFactor.
template <class T>
struct Fp8Halves;

// The E4M3 bits are placed directly below the sign of an f16, where the exponent bias is 8 less than that of
// f16. NaN becomes a finite value.
template <>
struct Fp8Halves<F8E4M3> {
  static constexpr float kFactor = 256.0f;
  static constexpr bool kDropsNaN = true;
  static __m256i of(const F8E4M3* p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080));
  }
};

// E5M2 is the upper byte of an f16.
template <>
struct Fp8Halves<F8E5M2> {
  static constexpr float kFactor = 1.0f;
  static constexpr bool kDropsNaN = false;
  static __m256i of(const F8E5M2* p) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_slli_epi16(wide, 8);
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
