// Multiply and accumulate pairs of bfloat16 (AVX512-BF16): twice as many products per instruction. Used
// when q and K/V are bfloat16, or fp8, whose values all are bfloat16 values. Weights are rounded to bfloat16
// before they meet V.
#pragma once

#include "attend/kernels/cpu/mac.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {
namespace {

struct Bf16Mac {
  using Simd = Avx512;
  using F32 = __m512;
  using Step = uint32_t;
  using StepVec = __m512i;
  static constexpr int kElements = 2;  // of a step: the first in the low half

  static StepVec load(const Step* p) { return _mm512_loadu_si512(p); }
  static void store(Step* p, StepVec x) { _mm512_storeu_si512(p, x); }
  static StepVec broadcast(const Step* p) { return _mm512_set1_epi32(static_cast<int>(*p)); }
  static StepVec zero() { return _mm512_setzero_si512(); }
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
  template <class T>
  static StepVec load_steps(const T* row, int n) {
    const F32 low = Simd::load_first(row, n < 16 ? n : 16);
    const F32 high = n <= 16 ? Simd::zero() : Simd::load_first(row + 16, n - 16);
    return pack(low, high);
  }

  template <class T>
  static StepVec load_across(const T* const (&rows)[kElements], int n) {
    return _mm512_or_si512(upper_halves(rows[1], n), _mm512_srli_epi32(upper_halves(rows[0], n), 16));
  }

  static void store_weights(Step* p, const F32 (&weights)[kElements]) {
    _mm512_storeu_si512(p, pack(weights[0], weights[1]));
  }

 private:
  static StepVec pack(F32 low, F32 high) { return std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
  // Bfloat16 values as the upper halves of floats.
  template <class T>
  static __m512i upper_halves(const T* row, int n) {
    if (row == nullptr) return zero();
    return _mm512_castps_si512(n == 16 ? Simd::load(row) : Simd::load_first(row, n));
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
