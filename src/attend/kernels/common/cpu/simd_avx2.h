// Vectors of 8 floats (AVX2, FMA, F16C), with the interface of simd.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

struct Avx2 {
  using F32 = __m256;
  static constexpr int kLanes = 8;
  // A microkernel holds 6 x 2 sums, 2 vectors of b and 1 of a: 15 of 16 registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVecs = 2;
  static constexpr int kRegisters = 16;

  // Prevents gcc from folding a load into every instruction that uses it: two load units could not sustain
  // this at two products per cycle.
  static void keep_in_register(F32& x) { asm("" : "+x"(x)); }
  static void keep_in_register(__m256i& x) { asm("" : "+x"(x)); }

  static F32 zero() { return _mm256_setzero_ps(); }
  static F32 set1(float x) { return _mm256_set1_ps(x); }
  static F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
  static F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
  static F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
  static F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  static F32 abs(F32 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static F32 copy_sign(F32 magnitude, F32 sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
  }
  static F32 round(F32 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F32 times_pow2(F32 x, F32 n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static F32 exponent_pow2(F32 x) {
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000)));
  }
  static F32 keep(uint64_t bits, F32 x, F32 if_false) {
    const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits & 0xff)), lane_bits);
    return _mm256_blendv_ps(if_false, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane_bits)));
  }
  static F32 if_less(F32 a, F32 b, F32 x, F32 if_false) {
    return _mm256_blendv_ps(if_false, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F32 if_nan(F32 a, F32 x, F32 if_false) {
    return _mm256_blendv_ps(if_false, x, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  static float reduce_max(F32 x) {
    const __m128 quad = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float reduce_add(F32 x) {
    const __m128 quad = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }

  static F32 load(const float* p) { return _mm256_loadu_ps(p); }
  static F32 load(const F16* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F32 load(const BF16* p) {
    const __m128i upper = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16));
  }
  // With the E4M3 bits directly below the sign of a float16, the exponent bias is 8 less than that of
  // float16.
  static F32 load(const F8E4M3* p) {
    const __m128i upper = _mm_slli_epi16(load_bytes(p), 8);
    const __m128i half = _mm_and_si128(_mm_srai_epi16(upper, 1), _mm_set1_epi16(-0x4001));
    const __m128i magnitude = _mm_and_si128(half, _mm_set1_epi16(0x3fff));
    const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x3f80));
    const __m128i fixed = _mm_blendv_epi8(half, _mm_set1_epi16(0x7e00), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(fixed), _mm256_set1_ps(256.0f));
  }
  // E5M2 is the upper byte of a float16.
  static F32 load(const F8E5M2* p) { return _mm256_cvtph_ps(_mm_slli_epi16(load_bytes(p), 8)); }

  template <class T>
  static F32 load_first(const T* p, int n) {
    if (n == kLanes) return load(p);
    T elements[kLanes] = {};
    std::memcpy(elements, p, static_cast<size_t>(n) * sizeof(T));
    return load(elements);
  }

  // Loads 2 kLanes elements in T's block order (simd.h): for bf16 the even ones first, then the odd ones.
  template <class T>
  static void load_block(const T* p, F32& a, F32& b) {
    a = load(p);
    b = load(p + kLanes);
  }
  static void load_block(const BF16* p, F32& a, F32& b) {
    __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    keep_in_register(pairs);
    split_pairs(pairs, a, b);
  }
  template <class T>
  static void load_block_first(const T* p, int n, F32& a, F32& b) {
    T elements[2 * kLanes] = {};
    std::memcpy(elements, p, static_cast<size_t>(n) * sizeof(T));
    load_block(elements, a, b);
  }
  template <class T>
  static void to_block_order(F32& a, F32& b) {
    if constexpr (std::is_same_v<T, BF16>) {
      const F32 even = _mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0));
      const F32 odd = _mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1));
      a = swap_middle_quarters(even);
      b = swap_middle_quarters(odd);
    }
  }
  template <class T>
  static void from_block_order(F32& a, F32& b) {
    if constexpr (std::is_same_v<T, BF16>) {
      const F32 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
      a = _mm256_permute2f128_ps(low, high, 0x20);
      b = _mm256_permute2f128_ps(low, high, 0x31);
    }
  }

  static void store(float* p, F32 x) { _mm256_storeu_ps(p, x); }
  static void store_first(float* p, F32 x, int n) {
    if (n == kLanes) return store(p, x);
    float elements[kLanes];
    store(elements, x);
    std::memcpy(p, elements, static_cast<size_t>(n) * sizeof(float));
  }
  static void store_first(F16* p, F32 x, int n) {
    const __m128i half = narrow_f16(x);
    std::memcpy(static_cast<void*>(p), &half, static_cast<size_t>(n) * sizeof(F16));
  }
  // Same rounding as BF16(float) in tensor/dtype.cc.
  static void store_first(BF16* p, F32 x, int n) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
    const __m128i upper = narrow_words(_mm256_srli_epi32(chosen, 16));
    std::memcpy(static_cast<void*>(p), &upper, static_cast<size_t>(n) * sizeof(BF16));
  }
  // Stores the sign of `x`, a float16 value, and the eight bits above its `drop` lowest bits, which are zero.
  static void store_first_byte(void* p, F32 x, int drop, int n) {
    const __m128i half = narrow_f16(x);
    const __m128i sign = _mm_srli_epi16(_mm_and_si128(half, _mm_set1_epi16(-0x8000)), 8);
    const __m128i magnitude = _mm_srli_epi16(_mm_and_si128(half, _mm_set1_epi16(0x7fff)), drop);
    const __m128i words = _mm_or_si128(sign, magnitude);
    const __m128i bytes = _mm_packus_epi16(words, words);
    std::memcpy(p, &bytes, static_cast<size_t>(n));
  }

  // rows[i] lane j becomes rows[j] lane i.
  static void transpose(F32 (&rows)[kLanes]) {
    F32 pairs[kLanes], quads[kLanes];
    for (int i = 0; i < kLanes; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < kLanes; i += 4)
      for (int j = 0; j < 2; ++j) {
        quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
        quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
      }
    for (int c = 0; c < 4; ++c) {
      rows[c] = _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x20);
      rows[4 + c] = _mm256_permute2f128_ps(quads[c], quads[4 + c], 0x31);
    }
  }

  // Lane i is the sum of the lanes of x[i].
  static F32 reduce_add_lanes(F32 (&x)[kLanes]) {
    F32 pairs[4], quads[2];
    for (int i = 0; i < 4; ++i)
      pairs[i] = add(_mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]), _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    for (int i = 0; i < 2; ++i)
      quads[i] = add(_mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], _MM_SHUFFLE(1, 0, 1, 0)),
                     _mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], _MM_SHUFFLE(3, 2, 3, 2)));
    return add(_mm256_permute2f128_ps(quads[0], quads[1], 0x20),
               _mm256_permute2f128_ps(quads[0], quads[1], 0x31));
  }

 private:
  static void split_pairs(__m256i pairs, F32& even, F32& odd) {
    even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static F32 swap_middle_quarters(F32 x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), _MM_SHUFFLE(3, 1, 2, 0)));
  }
  static __m128i load_bytes(const void* p) {
    return _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static __m128i narrow_f16(F32 x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m128i narrow_words(__m256i words) {
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
