// Codes of weights with AVX2.
#pragma once

#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/gemm/cpu/codes.h"

namespace attend::kernels::cpu {
namespace {

// As that of AVX-512.
template <>
struct Fp8Codes<Avx2> {
  static constexpr float kFactor = 256.0f;
  static __m256 load(const F8E4M3* p) {
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(-0x4080)));
  }
};

// A permutation looks at the lowest 3 bits of each lane, so a table is two vectors, and the fourth bit says
// which.
template <>
struct FourBits<Avx2> {
  using F32 = __m256;
  struct Table {
    __m256 low, high;
  };

  static Table table(const float (&values)[16]) {
    return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
  }
  static Table minus(const Table& table, F32 x) {
    return {_mm256_sub_ps(table.low, x), _mm256_sub_ps(table.high, x)};
  }
  static Table times(const Table& table, F32 x) {
    return {_mm256_mul_ps(table.low, x), _mm256_mul_ps(table.high, x)};
  }
  static F32 look_up(const uint8_t* p, const Table& table) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
    const __m256 fourth_bit = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, codes),
                            _mm256_permutevar8x32_ps(table.high, codes), fourth_bit);
  }
  static F32 to_code_order(F32 x) { return x; }
  static F32 from_code_order(F32 x) { return x; }
  static F32 gather(const float* row, const int32_t* order) {
    return _mm256_i32gather_ps(row, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(order)),
                               sizeof(float));
  }
  static F32 broadcast(F16 x) { return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(x.bits))); }
};

}  // namespace
}  // namespace attend::kernels::cpu
