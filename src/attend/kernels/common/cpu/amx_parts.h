// Splits values into sums of bfloat16 parts, the operands of AMX.
//
// A float32 is exactly the sum of three parts, a float16 of two, a bfloat16 or fp8 of one. So products of
// parts, summed in float32, have the accuracy of float32 arithmetic.
#pragma once

#include <type_traits>

#include "attend/kernels/common/cpu/mac_bf16.h"

namespace attend::kernels::cpu {
namespace {

template <class T>
inline constexpr int kNumBf16Parts = std::is_same_v<T, float> ? 3
                                     : std::is_same_v<T, F16> ? 2
                                                              : 1;

// The 32 elements of a block are 16 pairs. The type determines which two elements form a pair, whichever is
// cheaper: neighbors, or elements 16 apart.
template <class T>
inline constexpr bool kPairsAreStrided = kNumBf16Parts<T> > 1;

using Pairs = __m512i;

// Combines the upper halves of two vectors: pairs of elements that are 16 apart.
inline Pairs upper_halves(__m512 first, __m512 second) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(first), 16);
  const __m512i high = _mm512_castps_si512(second);
  // (high & 0xffff0000) | low
  return _mm512_ternarylogic_epi32(high, low, _mm512_set1_epi32(static_cast<int>(0xffff0000u)), 0xec);
}

// Splits 32 floats into kParts parts each by truncation, so that the remainder fits into the next part.
// Infinities become NaN.
template <int kParts>
void split(__m512 first, __m512 second, Pairs (&parts)[kParts]) {
  const __m512 upper = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  for (int part = 0; part < kParts; ++part) {
    parts[part] = upper_halves(first, second);
    if (part + 1 == kParts) break;
    first = _mm512_sub_ps(first, _mm512_and_ps(first, upper));
    second = _mm512_sub_ps(second, _mm512_and_ps(second, upper));
  }
}

// Converts pairs of elements 16 apart to pairs of neighbors.
inline Pairs to_adjacent(Pairs strided) {
  const __m512i words = _mm512_setr_epi32(
      0x00020000, 0x00060004, 0x000a0008, 0x000e000c, 0x00120010, 0x00160014, 0x001a0018, 0x001e001c,
      0x00030001, 0x00070005, 0x000b0009, 0x000f000d, 0x00130011, 0x00170015, 0x001b0019, 0x001f001d);
  return _mm512_permutexvar_epi16(words, strided);
}

// Splits P for 32 keys into kParts parts. A single part is rounded to nearest. Probabilities must not be
// negative.
template <int kParts>
void split_p_to_bf16(const __m512 (&p)[2], Pairs (&parts)[kParts]) {
  if constexpr (kParts == 1) {
    const auto rounded = [](__m512 x) {
      return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)));
    };
    parts[0] = upper_halves(rounded(p[0]), rounded(p[1]));
  } else {
    split(p[0], p[1], parts);
  }
}

// Reads blocks of 32 elements of K or V as pairs.
template <class T>
class Bf16PartsReader {
 public:
  static constexpr int kParts = kNumBf16Parts<T>;

  void read(const T* row, Pairs (&parts)[kParts]) const {
    if constexpr (std::is_same_v<T, BF16>)
      parts[0] = _mm512_loadu_si512(row);
    else
      split(Avx512::load(row), Avx512::load(row + 16), parts);
  }
  // Reads the first n < 32 elements, padded with zeros.
  void read_first(const T* row, int n, Pairs (&parts)[kParts]) const {
    if constexpr (std::is_same_v<T, BF16>) {
      parts[0] = Bf16Mac::load_steps(row, n);
    } else {
      __m512 first, second;
      Avx512::load_block_first(row, n, first, second);
      split(first, second, parts);
    }
  }
};

template <class T>
requires(kIsFp8<T>) class Bf16PartsReader<T> {
 public:
  static constexpr int kParts = 1;

  void read(const T* row, Pairs (&parts)[kParts]) const {
    parts[0] = table_.convert(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
  }
  void read_first(const T* row, int n, Pairs (&parts)[kParts]) const {
    parts[0] = table_.convert(_mm256_maskz_loadu_epi8(static_cast<__mmask32>((uint32_t{1} << n) - 1), row));
  }

 private:
  const Fp8Registers<T> table_{};
};

// Combines the pairs of two rows of V into columns of a block of 32.
template <class T>
void combine_rows(Pairs first, Pairs second, Pairs& low, Pairs& high) {
  if constexpr (kPairsAreStrided<T>) {
    // Elements 0..15 are the lower halves, 16..31 the upper ones.
    low = _mm512_mask_blend_epi16(0xaaaaaaaa, first, _mm512_slli_epi32(second, 16));
    high = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(first, 16), second);
  } else {
    low = _mm512_unpacklo_epi16(first, second);
    high = _mm512_unpackhi_epi16(first, second);
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
