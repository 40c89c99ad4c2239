// Vectors of 16 floats (AVX-512 F, BW, DQ, VL), with the interface of simd.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

struct Avx512 {
  using F32 = __m512;
  static constexpr int kLanes = 16;
  // A microkernel holds 6 x 4 sums, 4 vectors of b and 1 of a: 29 of 32 registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVecs = 4;
  static constexpr int kRegisters = 32;

  static F32 zero() { return _mm512_setzero_ps(); }
  static F32 set1(float x) { return _mm512_set1_ps(x); }
  static F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
  static F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
  static F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
  static F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32 abs(F32 x) { return _mm512_abs_ps(x); }
  static F32 copy_sign(F32 magnitude, F32 sign) {
    const __m512 sign_bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, sign_bit));
  }
  static F32 round(F32 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F32 times_pow2(F32 x, F32 n) { return _mm512_scalef_ps(x, n); }
  static F32 exponent_pow2(F32 x) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000)));
  }
  static F32 keep(uint64_t bits, F32 x, F32 if_false) {
    return _mm512_mask_mov_ps(if_false, static_cast<__mmask16>(bits), x);
  }
  static F32 if_less(F32 a, F32 b, F32 x, F32 if_false) {
    return _mm512_mask_mov_ps(if_false, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x);
  }
  static F32 if_nan(F32 a, F32 x, F32 if_false) {
    return _mm512_mask_mov_ps(if_false, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), x);
  }
  static float reduce_max(F32 x) { return _mm512_reduce_max_ps(x); }
  static float reduce_add(F32 x) { return _mm512_reduce_add_ps(x); }

  static F32 load(const float* p) { return _mm512_loadu_ps(p); }
  static F32 load(const F16* p) {
    return f16_to_f32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32 load(const BF16* p) {
    return bf16_to_f32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32 load(const F8E4M3* p) {
    return e4m3_to_f32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F32 load(const F8E5M2* p) {
    return e5m2_to_f32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  static F32 load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static F32 load_first(const F16* p, int n) { return f16_to_f32(_mm256_maskz_loadu_epi16(first(n), p)); }
  static F32 load_first(const BF16* p, int n) { return bf16_to_f32(_mm256_maskz_loadu_epi16(first(n), p)); }
  static F32 load_first(const F8E4M3* p, int n) { return e4m3_to_f32(_mm_maskz_loadu_epi8(first(n), p)); }
  static F32 load_first(const F8E5M2* p, int n) { return e5m2_to_f32(_mm_maskz_loadu_epi8(first(n), p)); }

  // Loads 2 kLanes elements in T's block order (simd.h): for bf16 the even ones first, then the odd ones.
  template <class T>
  static void load_block(const T* p, F32& a, F32& b) {
    a = load(p);
    b = load(p + kLanes);
  }
  static void load_block(const BF16* p, F32& a, F32& b) { split_pairs(_mm512_loadu_si512(p), a, b); }
  template <class T>
  static void load_block_first(const T* p, int n, F32& a, F32& b) {
    a = load_first(p, n < kLanes ? n : kLanes);
    b = n <= kLanes ? zero() : load_first(p + kLanes, n - kLanes);
  }
  static void load_block_first(const BF16* p, int n, F32& a, F32& b) {
    split_pairs(_mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p), a, b);
  }
  template <class T>
  static void to_block_order(F32& a, F32& b) {
    if constexpr (std::is_same_v<T, BF16>) {
      const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      const F32 low = a;
      a = _mm512_permutex2var_ps(low, even, b);
      b = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
    }
  }
  template <class T>
  static void from_block_order(F32& a, F32& b) {
    if constexpr (std::is_same_v<T, BF16>) {
      const __m512i low_half = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      const F32 even = a;
      a = _mm512_permutex2var_ps(even, low_half, b);
      b = _mm512_permutex2var_ps(even, _mm512_add_epi32(low_half, _mm512_set1_epi32(8)), b);
    }
  }

  static void store(float* p, F32 x) { _mm512_storeu_ps(p, x); }
  static void store_first(float* p, F32 x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
  static void store_first(F16* p, F32 x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow_f16(x)); }
  static void store_first(BF16* p, F32 x, int n) { _mm256_mask_storeu_epi16(p, first(n), narrow_bf16(x)); }
  // Stores the sign of `x`, a float16 value, and the eight bits above its `drop` lowest bits, which are zero.
  static void store_first_byte(void* p, F32 x, int drop, int n) {
    const __m256i half = narrow_f16(x);
    const __m256i sign = _mm256_srli_epi16(_mm256_and_si256(half, _mm256_set1_epi16(-0x8000)), 8);
    const __m256i magnitude = _mm256_srli_epi16(_mm256_and_si256(half, _mm256_set1_epi16(0x7fff)), drop);
    _mm_mask_storeu_epi8(p, first(n), _mm256_cvtepi16_epi8(_mm256_or_si256(sign, magnitude)));
  }

  // rows[i] lane j becomes rows[j] lane i.
  static void transpose(F32 (&rows)[kLanes]) {
    for (int i = 0; i < kLanes; i += 2) {
      const F32 a = rows[i], b = rows[i + 1];
      rows[i] = _mm512_unpacklo_ps(a, b);
      rows[i + 1] = _mm512_unpackhi_ps(a, b);
    }
    F32 quads[kLanes];
    for (int i = 0; i < kLanes; i += 4)
      for (int j = 0; j < 2; ++j) {
        const __m512d a = _mm512_castps_pd(rows[i + j]), b = _mm512_castps_pd(rows[i + j + 2]);
        quads[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        quads[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
      }
    // quads[4 g + c] holds, for each of its four 128-bit parts q, column 4 q + c of the rows 4 g .. 4 g + 3.
    for (int c = 0; c < 4; ++c) {
      const F32 low01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x88);
      const F32 high01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xdd);
      const F32 low23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x88);
      const F32 high23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xdd);
      rows[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
      rows[4 + c] = _mm512_shuffle_f32x4(high01, high23, 0x88);
      rows[8 + c] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
      rows[12 + c] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
  }

  // Lane i is the sum of the lanes of x[i].
  static F32 reduce_add_lanes(F32 (&x)[kLanes]) {
    F32 quads[4];
    for (int i = 0; i < 4; ++i) {
      const F32 ab =
          add(_mm512_unpacklo_ps(x[4 * i], x[4 * i + 1]), _mm512_unpackhi_ps(x[4 * i], x[4 * i + 1]));
      const F32 cd =
          add(_mm512_unpacklo_ps(x[4 * i + 2], x[4 * i + 3]), _mm512_unpackhi_ps(x[4 * i + 2], x[4 * i + 3]));
      quads[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
                     _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
    }
    const auto add_parts = [](F32 a, F32 b) {
      return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    };
    return add_parts(add_parts(quads[0], quads[1]), add_parts(quads[2], quads[3]));
  }

  // Converts pairs of bfloat16 to floats.
  static void split_pairs(__m512i pairs, F32& even, F32& odd) {
    even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }

 private:
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }

  static F32 f16_to_f32(__m256i half) { return _mm512_cvtph_ps(half); }
  static F32 bf16_to_f32(__m256i upper) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16));
  }
  // E5M2 is the upper byte of a float16.
  static F32 e5m2_to_f32(__m128i bytes) {
    return f16_to_f32(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
  }
  // With the E4M3 bits directly below the sign of a float16, the exponent bias is 8 less than that of
  // float16.
  static F32 e4m3_to_f32(__m128i bytes) {
    const __m256i upper = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    const __m256i half = _mm256_and_si256(_mm256_srai_epi16(upper, 1), _mm256_set1_epi16(-0x4001));
    const __m256i magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x3fff));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
    const __m256i fixed = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(f16_to_f32(fixed), _mm512_set1_ps(256.0f));
  }
  static __m256i narrow_f16(F32 x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // Same rounding as BF16(float) in tensor/dtype.cc.
  static __m256i narrow_bf16(F32 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
