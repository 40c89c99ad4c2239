// Multiplies and accumulates pairs of bfloat16 (AVX512-BF16): twice the products per instruction. Used if q
// and K/V are bfloat16, or fp8, which converts to bfloat16 exactly. Softmax weights are rounded to bfloat16
// before they multiply V.
#pragma once

#include <bit>

#include "attend/kernels/common/cpu/fp8_table.h"
#include "attend/kernels/common/cpu/mac.h"
#include "attend/kernels/common/cpu/simd_avx512.h"

namespace attend::kernels::cpu {
namespace {

struct Bf16Mac {
  using Simd = Avx512;
  using F32 = __m512;
  using Step = uint32_t;
  using StepVec = __m512i;
  static constexpr int kElements = 2;  // elements per step: the first in the low half

  static StepVec load(const Step* p) { return _mm512_loadu_si512(p); }
  static void store(Step* p, StepVec x) { _mm512_storeu_si512(p, x); }
  static StepVec broadcast(const Step* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  static StepVec zero() { return _mm512_setzero_si512(); }
  static void keep_in_register(StepVec&) {}
  static F32 mac(StepVec a, StepVec b, F32 sum) {
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(a), std::bit_cast<__m512bh>(b));
  }
  static void transpose(StepVec (&rows)[16]) {
    F32 floats[16];
    for (int i = 0; i < 16; ++i) floats[i] = _mm512_castsi512_ps(rows[i]);
    Simd::transpose(floats);
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_castps_si512(floats[i]);
  }

  static StepVec load_steps(const BF16* row, int n) {
    return n == 32 ? _mm512_loadu_si512(row)
                   : _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), row);
  }
  // Rounds to bfloat16.
  static StepVec load_steps(const float* row, int n) {
    const F32 low = Simd::load_first(row, n < 16 ? n : 16);
    const F32 high = n <= 16 ? Simd::zero() : Simd::load_first(row + 16, n - 16);
    return pack(low, high);
  }
  template <class T>
  requires(kIsFp8<T>) static StepVec load_steps(const T* row, int n) {
    const __m256i bytes = n == 32
                              ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row))
                              : _mm256_maskz_loadu_epi8(static_cast<__mmask32>((uint64_t{1} << n) - 1), row);
    return Fp8Registers<T>().convert(bytes);
  }

  static StepVec load_across(const BF16* const (&rows)[kElements], int n) {
    return _mm512_or_si512(upper_halves(rows[1], n), _mm512_srli_epi32(upper_halves(rows[0], n), 16));
  }
  template <class T>
  requires(kIsFp8<T>) static StepVec load_across(const T* const (&rows)[kElements], int n) {
    __m128i bytes[kElements];
    for (int i = 0; i < kElements; ++i)
      bytes[i] = rows[i] == nullptr ? _mm_setzero_si128()
                                    : _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1), rows[i]);
    return Fp8Registers<T>().convert(
        _mm256_set_m128i(_mm_unpackhi_epi8(bytes[0], bytes[1]), _mm_unpacklo_epi8(bytes[0], bytes[1])));
  }

  // Unpacked layout (skinny.h): a block is kBlock elements of a row, of which the first n are read.
  static constexpr int kBlock = 32, kBlockVecs = 1, kColumnVecs = 2;
  template <class T>
  static void load_block(const T* row, int n, StepVec (&steps)[kBlockVecs]) {
    steps[0] = load_steps(row, n < 32 ? n : 32);
  }
  // Loads the block at element d of each of two rows. The first half of every quarter of the columns goes to
  // the first vector, the second half to the second. Null rows are zeros.
  template <class T>
  static void load_block_across(const char* const (&rows)[kElements], int d, int n,
                                StepVec (&steps)[kColumnVecs]) {
    StepVec halves[kElements][1] = {{zero()}, {zero()}};
    for (int i = 0; i < kElements; ++i)
      if (rows[i] != nullptr) load_block(reinterpret_cast<const T*>(rows[i]) + d, n, halves[i]);
    steps[0] = _mm512_unpacklo_epi16(halves[0][0], halves[1][0]);
    steps[1] = _mm512_unpackhi_epi16(halves[0][0], halves[1][0]);
  }
  template <class T>
  static void order_query(StepVec (&)[kBlockVecs]) {}
  template <class T>
  static void order_columns(F32 (&columns)[kColumnVecs]) {
    auto& [a, b] = columns;
    const F32 low = a;
    a = _mm512_permutex2var_ps(low, first_halves(), b);
    b = _mm512_permutex2var_ps(low, _mm512_add_epi32(first_halves(), _mm512_set1_epi32(4)), b);
  }
  template <class T>
  static void restore_columns(F32 (&columns)[kColumnVecs]) {
    auto& [a, b] = columns;
    const __m512i low_half = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const F32 first = a;
    a = _mm512_permutex2var_ps(first, low_half, b);
    b = _mm512_permutex2var_ps(first, _mm512_add_epi32(low_half, _mm512_set1_epi32(8)), b);
  }

  static void store_p(Step* to, const F32 (&p)[kElements]) { _mm512_storeu_si512(to, pack(p[0], p[1])); }

 protected:
  static __m512i first_halves() {
    return _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  }

 private:
  static StepVec pack(F32 low, F32 high) { return std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
  // bfloat16 values as the upper halves of floats.
  static __m512i upper_halves(const BF16* row, int n) {
    if (row == nullptr) return zero();
    return _mm512_castps_si512(n == 16 ? Simd::load(row) : Simd::load_first(row, n));
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
