// Dequantized values with AVX-512.
#pragma once

#include "attend/kernels/common/cpu/simd_avx512.h"
#include "attend/kernels/gemm/cpu/quantized_values.h"

namespace attend::kernels::cpu {
namespace {

// Sign-extending a byte puts the sign one bit above the f16 exponent too. The exponent bias is 8 less than
// that of f16.
template <>
struct Fp8Values<Avx512> {
  using Fp8Value = F8E4M3;
  static constexpr float kFactor = 256.0f;
  static __m512 load(const F8E4M3* p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080)));
  }
};

template <>
struct Int8Values<Avx512> {
  using Fp8Value = int8_t;
  static constexpr float kFactor = 1.0f;
  static __m512 load(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
};

template <>
struct HalfValue<Avx512> {
  static float load(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return _cvtsh_ss(half);
  }
};

template <>
struct TableValues<Avx512> {
  static __m512 load(const int8_t* indices, const float* table) {
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(indices)));
    return _mm512_permutexvar_ps(wide, _mm512_loadu_ps(table));
  }
};

// A permutation uses the lowest 4 bits of each lane, so a shift moves a value into place. All 16 values of a
// block are 64 bits. If each 64-bit lane is shifted by 4 more bits than the previous one, its lower half ends
// with value j and its upper half with value j + 8.
template <>
struct Int4Decoder<Avx512> {
  using F32 = __m512;
  using Table = __m512;

  static Table int4(uint8_t zero, F32 scale) {
    return _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(kInt4Values), _mm512_set1_ps(zero)), scale);
  }
  static Table e2m1(F32 scale) { return _mm512_mul_ps(_mm512_loadu_ps(kE2M1Values), scale); }
  static F32 look_up(const uint8_t* p, Table table) {
    int64_t codes;
    std::memcpy(&codes, p, sizeof codes);
    const __m512i shifts = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm512_permutexvar_ps(_mm512_srlv_epi64(_mm512_set1_epi64(codes), shifts), table);
  }
  static F32 to_packed_order(F32 x) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), x);
  }
  static F32 from_packed_order(F32 x) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), x);
  }
  static F32 gather(const float* row, const int32_t* order) {
    return _mm512_i32gather_ps(_mm512_loadu_si512(order), row, sizeof(float));
  }
  static F32 broadcast(F16 x) { return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(x.bits))); }
};

}  // namespace
}  // namespace attend::kernels::cpu
