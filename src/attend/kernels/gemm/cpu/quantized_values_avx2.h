// Dequantized values with AVX2. 4-bit values are converted to f16, which is exact, and pass through memory
// (fp8_halves.h). For fp8 this is slower than converting in registers, unlike in attention.
#pragma once

#include <array>

#include "attend/kernels/common/cpu/fp8_halves.h"
#include "attend/kernels/common/cpu/simd_avx2.h"
#include "attend/kernels/gemm/cpu/quantized_values.h"

namespace attend::kernels::cpu {
namespace {

template <>
struct Fp8Values<Avx2> {
  using Fp8Value = F8E4M3;
  static constexpr float kFactor = Fp8Halves<F8E4M3>::kFactor;
  static __m256 load(const F8E4M3* p) {
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(-0x4080)));
  }
};

template <>
struct Int8Values<Avx2> {
  using Fp8Value = int8_t;
  static constexpr float kFactor = 1.0f;
  static __m256 load(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
};

template <>
struct HalfValue<Avx2> {
  static float load(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return _cvtsh_ss(half);
  }
};

template <>
struct TableValues<Avx2> {
  static __m256 load(const int8_t* indices, const float* table) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(indices)));
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), wide);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), wide);
    // Bit 3 of an index becomes the sign that selects.
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 28)));
  }
};

// Lower and upper bytes of 16 f16 values, each table in both halves of a vector.
struct HalvesTable {
  alignas(32) std::array<uint8_t, 32> low, high;

  // Table of q - zero for all 16 values q.
  static constexpr HalvesTable make_integer_table(int zero) {
    HalvesTable table{};
    for (int code = 0; code < 16; ++code) table.set(code, make_integer(code - zero));
    return table;
  }
  // f16 has nine more mantissa bits than e2m1, and an exponent bias that is 14 higher. 0.5 is the only
  // subnormal value of e2m1.
  static constexpr HalvesTable make_e2m1_table() {
    HalvesTable table{};
    for (int code = 0; code < 16; ++code) {
      const int magnitude = code & 7;
      const int bits = magnitude < 2 ? magnitude * 0x3800 : magnitude * 0x200 + 14 * 0x400;
      table.set(code, static_cast<uint16_t>(bits | (code & 8) << 12));
    }
    return table;
  }

 private:
  constexpr void set(int code, uint16_t half) {
    for (const int place : {code, code + 16}) {
      low[static_cast<size_t>(place)] = static_cast<uint8_t>(half & 0xff);
      high[static_cast<size_t>(place)] = static_cast<uint8_t>(half >> 8);
    }
  }
  static constexpr uint16_t make_integer(int x) {
    if (x == 0) return 0;
    const auto magnitude = static_cast<unsigned>(x < 0 ? -x : x);
    const int exponent = std::bit_width(magnitude) - 1;  // at most 7
    const unsigned mantissa = magnitude << (10 - exponent) & 0x3ff;
    return static_cast<uint16_t>((x < 0 ? 0x8000u : 0u) | static_cast<unsigned>(exponent + 15) << 10 |
                                 mantissa);
  }
};

// Tables for all zero points.
inline constexpr std::array<HalvesTable, 256> kIntegerHalves = [] {
  std::array<HalvesTable, 256> tables{};
  for (int zero = 0; zero < 256; ++zero)
    tables[static_cast<size_t>(zero)] = HalvesTable::make_integer_table(zero);
  return tables;
}();
inline constexpr HalvesTable kE2M1Halves = HalvesTable::make_e2m1_table();

template <>
struct Int4Decoder<Avx2> {
  using F32 = __m256;
  struct Table {
    const HalvesTable* halves;
    __m256 scale;
  };

  static Table int4(uint8_t zero, F32 scale) { return {&kIntegerHalves[zero], scale}; }
  static Table e2m1(F32 scale) { return {&kE2M1Halves, scale}; }

  static F32 look_up(const uint8_t* p, const Table& table) {
    int32_t word;
    std::memcpy(&word, p, sizeof word);
    const __m128i codes = split(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(word)));
    const __m128i low = _mm_shuffle_epi8(_mm256_castsi256_si128(bytes(table.halves->low)), codes);
    const __m128i high = _mm_shuffle_epi8(_mm256_castsi256_si128(bytes(table.halves->high)), codes);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_unpacklo_epi8(low, high)), table.scale);
  }

  static constexpr int kBlockVectors = 4;
  struct Block {
    alignas(32) uint16_t halves[32];

    void store(int at, __m256i x) { _mm256_store_si256(reinterpret_cast<__m256i*>(halves + at), x); }
    __m256 load(int at) const {
      return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves + at)));
    }
  };
  static void load_block(const uint8_t* p, const Table& table, Block& block) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i two = _mm256_or_si256(wide, _mm256_slli_epi16(wide, 4));
    const __m256i codes = _mm256_and_si256(two, _mm256_set1_epi8(15));
    const __m256i low = _mm256_shuffle_epi8(bytes(table.halves->low), codes);
    const __m256i high = _mm256_shuffle_epi8(bytes(table.halves->high), codes);
    block.store(0, _mm256_unpacklo_epi8(low, high));
    block.store(16, _mm256_unpackhi_epi8(low, high));
  }
  // Vectors are interleaved per 128-bit half: the first has values 0 to 7 and 16 to 23.
  static F32 load_vector(const Block& block, int i, const Table& table) {
    return _mm256_mul_ps(block.load(i % 2 * 16 + i / 2 * 8), table.scale);
  }

  static F32 to_packed_order(F32 x) { return x; }
  static F32 from_packed_order(F32 x) { return x; }
  static F32 gather(const float* row, const int32_t* order) {
    return _mm256_i32gather_ps(row, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(order)),
                               sizeof(float));
  }
  static F32 broadcast(F16 x) { return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(x.bits))); }

 private:
  static __m256i bytes(const std::array<uint8_t, 32>& of) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(of.data()));
  }
  // Splits each byte's two 4-bit values into 16 bits, the lower one in the lower byte.
  static __m128i split(__m128i wide) {
    return _mm_and_si128(_mm_or_si128(wide, _mm_slli_epi16(wide, 4)), _mm_set1_epi8(15));
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
