// Conversion of fp8 to bfloat16, which is exact, through tables: 64 values need two lookups and one more
// instruction, while arithmetic through float32 needs 40.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

template <class T>
inline constexpr bool kIsFp8 = std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2>;

// Returns the bfloat16 bits for the lower seven bits of an fp8 with this number of exponent and fraction
// bits. E4M3 has no infinities, and one NaN.
constexpr uint16_t fp8_to_bf16_bits(uint32_t bits, int exponent_bits, int fraction_bits) {
  constexpr uint16_t kNaN = 0x7fc0, kInfinity = 0x7f80;
  const uint32_t exponent = bits >> fraction_bits, fraction = bits & ((1u << fraction_bits) - 1);
  const uint32_t bias = 127 - ((1u << (exponent_bits - 1)) - 1);
  if (fraction_bits == 3 && bits == 0x7f) return kNaN;
  if (fraction_bits == 2 && exponent == 31) return fraction == 0 ? kInfinity : kNaN;
  if (exponent > 0) return static_cast<uint16_t>((exponent + bias) << 7 | fraction << (7 - fraction_bits));
  if (fraction == 0) return 0;
  // fraction * 2^(1 - fraction_bits) times the smallest normal value's power of two
  const auto highest = static_cast<uint32_t>(std::bit_width(fraction)) - 1;
  const uint32_t lost = static_cast<uint32_t>(fraction_bits) - highest;
  return static_cast<uint16_t>((1 + bias - lost) << 7 | ((fraction << (7 - highest)) & 0x7f));
}

// Tables of lower and upper bytes.
struct Fp8Table {
  alignas(64) uint8_t low[128], high[128];

  template <class T>
  static constexpr Fp8Table of() {
    constexpr bool kE4M3 = std::is_same_v<T, F8E4M3>;
    Fp8Table table{};
    for (uint32_t bits = 0; bits < 128; ++bits) {
      const uint16_t value = fp8_to_bf16_bits(bits, kE4M3 ? 4 : 5, kE4M3 ? 3 : 2);
      table.low[bits] = static_cast<uint8_t>(value & 0xff);
      table.high[bits] = static_cast<uint8_t>(value >> 8);
    }
    return table;
  }
};

// The tables in registers.
template <class T>
class Fp8Registers {
 public:
  Fp8Registers() {
    for (int half = 0; half < 2; ++half) {
      low_[half] = _mm512_load_si512(kTable.low + half * 64);
      high_[half] = _mm512_load_si512(kTable.high + half * 64);
    }
  }

  // Looks up the lower and the upper bytes of 64 values in bfloat16.
  void look_up(__m512i bytes, __m512i& low, __m512i& high) const {
    low = _mm512_permutex2var_epi8(low_[0], bytes, low_[1]);
    // Looked-up value | (bytes & 0x80), the sign.
    high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high_[0], bytes, high_[1]), bytes,
                                     _mm512_set1_epi8(-0x80), 0xf8);
  }
  // Converts 32 values in order.
  __m512i convert(__m256i block) const {
    const __m512i bytes = _mm512_castsi256_si512(block);
    // Moves eight bytes to the start of each quarter.
    const __m512i spread = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 0, 2, 0, 3, 0), bytes);
    __m512i low, high;
    look_up(spread, low, high);
    return _mm512_unpacklo_epi8(low, high);
  }
  // Converts 64 values: of each 16, the first eight to a, the others to b.
  void convert(__m512i bytes, __m512i& a, __m512i& b) const {
    __m512i low, high;
    look_up(bytes, low, high);
    a = _mm512_unpacklo_epi8(low, high);
    b = _mm512_unpackhi_epi8(low, high);
  }

 private:
  static constexpr Fp8Table kTable = Fp8Table::of<T>();

  __m512i low_[2], high_[2];
};

}  // namespace
}  // namespace attend::kernels::cpu
