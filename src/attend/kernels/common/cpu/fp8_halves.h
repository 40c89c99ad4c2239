// fp8 as f16, which F16C widens while it loads: with AVX2 the shortest way to float32 is through memory. From
// a register a conversion takes twice as long.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

// 16 values, kFactor times smaller.
template <class T>
struct Fp8Halves;

// One place below the sign of an f16 stand four bits of exponent, whose bias is 8 less than that of f16. The
// bits of NaN come out as a number's.
template <>
struct Fp8Halves<F8E4M3> {
  static constexpr float kFactor = 256.0f;
  static constexpr bool kDropsNaN = true;
  static __m256i of(const F8E4M3* p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080));
  }
};

// The upper byte of an f16.
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
