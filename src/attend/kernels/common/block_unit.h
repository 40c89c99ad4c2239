// Units of 32 elements of GGUF's block formats, decoded to integers, scales and minima. Included by kernels
// of each instruction set, whose compiler vectorizes the loops.
//
// Layouts are those of ggml's ggml-common.h. Products of scales and integers are exact in float32 in every
// format, so the order of operations does not change an element.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "attend/tensor/block_format.h"

namespace attend::kernels {
namespace {

inline constexpr int kUnitElements = 32, kHalfUnit = 16;

// Element i is code(i) * scales[i / 16] - minima[i / 16]; code(i) is codes[i], or kTable[codes[i]] in formats
// with a table.
struct BlockUnit {
  alignas(64) int8_t codes[kUnitElements];
  float scales[2], minima[2];
};

// Conversion of f16 scales, which are finite. Instruction sets have others.
struct FiniteHalf {
  // Subtracts the difference of the exponent biases by a multiplication, which also normalizes subnormal
  // numbers.
  static float load(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    const float magnitude = std::bit_cast<float>((half & 0x7fffu) << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (half & 0x8000u) << 16);
  }
};

inline void set_scales(BlockUnit& unit, float scale, float minimum = 0.0f) {
  unit.scales[0] = unit.scales[1] = scale;
  unit.minima[0] = unit.minima[1] = minimum;
}

// 16 codes, on which every instruction set has shifts of 64-bit lanes. Bits that a shift moves to the next
// byte are masked.
using Codes = uint64_t __attribute__((vector_size(16)));
using SignedCodes = int8_t __attribute__((vector_size(16)));
inline constexpr uint64_t kOnes = 0x0101010101010101;

inline Codes load_codes(const uint8_t* p) {
  Codes codes;
  std::memcpy(&codes, p, sizeof codes);
  return codes;
}

// Stores fn(0) - offset and fn(1) - offset, the two halves of a unit's codes. Whole vectors are stored, since
// they are loaded as such.
template <int8_t kOffset = 0, class Fn>
void set_codes(BlockUnit& unit, const Fn& fn) {
  for (int half = 0; half < 2; ++half) {
    const Codes codes = fn(half);
    SignedCodes bytes;
    std::memcpy(&bytes, &codes, sizeof bytes);
    bytes -= kOffset;
    std::memcpy(unit.codes + half * kHalfUnit, &bytes, sizeof bytes);
  }
}

// 16 bytes with the first half in their lower nibbles.
inline Codes nibbles(const uint8_t* bytes, int half) { return load_codes(bytes) >> (4 * half) & 15 * kOnes; }

// Spreads 16 bits to the fifth bits of 16 codes.
inline Codes fifth_bits(const uint8_t* bits) {
  Codes spread = {bits[0] * kOnes, bits[1] * kOnes};
  spread &= 0x8040201008040201;
  return (spread + 127 * kOnes) >> 3 & 16 * kOnes;
}

// Scales and minima of 6 bits of Q4_K and Q5_K.
inline void set_packed_scales(BlockUnit& unit, const uint8_t* packed, int index, float scale, float minimum) {
  int s, m;
  if (index < 4) {
    s = packed[index] & 63;
    m = packed[index + 4] & 63;
  } else {
    s = (packed[index + 4] & 15) | (packed[index - 4] >> 6) << 4;
    m = packed[index + 4] >> 4 | (packed[index] >> 6) << 4;
  }
  set_scales(unit, scale * static_cast<float>(s), minimum * static_cast<float>(m));
}

// Codes of formats with a table; null: integers.
template <BlockFormat kFormat>
inline constexpr const float* kTable = nullptr;
inline constexpr float kNonLinearValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
template <>
inline constexpr const float* kTable<BlockFormat::kIq4Nl> = kNonLinearValues;
template <>
inline constexpr const float* kTable<BlockFormat::kIq4Xs> = kNonLinearValues;
// Twice the values of e2m1.
inline constexpr float kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
template <>
inline constexpr const float* kTable<BlockFormat::kMxFp4> = kTwiceE2M1;

// 2^(exponent - 128), half of the scale of MXFP4. The smallest two are subnormal.
inline float half_power_of_two(uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent
                                           : static_cast<uint32_t>(exponent - 1) << 23);
}

// Decodes unit `u` of a block.
template <BlockFormat kFormat, class Half>
void decode_unit(const uint8_t* block, [[maybe_unused]] int u, BlockUnit& unit) {
  // Position in blocks of two halves with four units each.
  [[maybe_unused]] const int half = u / 4, quarter = u % 4;
  if constexpr (kFormat == BlockFormat::kQ4_0) {
    set_codes<8>(unit, [&](int i) { return nibbles(block + 2, i); });
    set_scales(unit, Half::load(block));
  } else if constexpr (kFormat == BlockFormat::kQ4_1) {
    set_codes(unit, [&](int i) { return nibbles(block + 4, i); });
    set_scales(unit, Half::load(block), -Half::load(block + 2));
  } else if constexpr (kFormat == BlockFormat::kQ5_0) {
    set_codes<16>(unit, [&](int i) { return nibbles(block + 6, i) | fifth_bits(block + 2 + 2 * i); });
    set_scales(unit, Half::load(block));
  } else if constexpr (kFormat == BlockFormat::kQ5_1) {
    set_codes(unit, [&](int i) { return nibbles(block + 8, i) | fifth_bits(block + 4 + 2 * i); });
    set_scales(unit, Half::load(block), -Half::load(block + 2));
  } else if constexpr (kFormat == BlockFormat::kQ8_0) {
    std::memcpy(unit.codes, block + 2, kUnitElements);
    set_scales(unit, Half::load(block));
  } else if constexpr (kFormat == BlockFormat::kQ2K) {
    const uint8_t *const scales = block, *const codes = block + 16 + 32 * half;
    const float scale = Half::load(block + 80), minimum = Half::load(block + 82);
    set_codes(unit, [&](int i) { return load_codes(codes + 16 * i) >> (2 * quarter) & 3 * kOnes; });
    for (int i = 0; i < 2; ++i) {
      const uint8_t packed = scales[2 * u + i];
      unit.scales[i] = scale * static_cast<float>(packed & 15);
      unit.minima[i] = minimum * static_cast<float>(packed >> 4);
    }
  } else if constexpr (kFormat == BlockFormat::kQ3K) {
    const uint8_t *const high = block, *const codes = block + 32 + 32 * half, *const scales = block + 96;
    const float scale = Half::load(block + 108);
    set_codes<4>(unit, [&](int i) {
      return (load_codes(codes + 16 * i) >> (2 * quarter) & 3 * kOnes) |
             (load_codes(high + 16 * i) >> u & kOnes) << 2;
    });
    for (int i = 0; i < 2; ++i) {
      const int s = 2 * u + i;
      const int low_bits = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
      const int code = low_bits | (scales[8 + s % 4] >> (2 * (s / 4)) & 3) << 4;
      unit.scales[i] = scale * static_cast<float>(code - 32);
      unit.minima[i] = 0.0f;
    }
  } else if constexpr (kFormat == BlockFormat::kQ4K || kFormat == BlockFormat::kQ5K) {
    constexpr bool kFiveBits = kFormat == BlockFormat::kQ5K;
    const uint8_t *const high = block + 16, *const codes = block + (kFiveBits ? 48 : 16) + 32 * (u / 2);
    set_codes(unit, [&](int i) {
      const Codes low = load_codes(codes + 16 * i) >> (4 * (u % 2)) & 15 * kOnes;
      return kFiveBits ? low | (load_codes(high + 16 * i) >> u & kOnes) << 4 : low;
    });
    set_packed_scales(unit, block + 4, u, Half::load(block), Half::load(block + 2));
  } else if constexpr (kFormat == BlockFormat::kQ6K) {
    const uint8_t *const low = block + 64 * half + 32 * (quarter % 2), *const high = block + 128 + 32 * half;
    const float scale = Half::load(block + 208);
    set_codes<32>(unit, [&](int i) {
      return (load_codes(low + 16 * i) >> (4 * (quarter / 2)) & 15 * kOnes) |
             (load_codes(high + 16 * i) >> (2 * quarter) & 3 * kOnes) << 4;
    });
    for (int i = 0; i < 2; ++i) {
      unit.scales[i] = scale * static_cast<float>(static_cast<int8_t>(block[192 + 2 * u + i]));
      unit.minima[i] = 0.0f;
    }
  } else if constexpr (kFormat == BlockFormat::kIq4Nl) {
    set_codes(unit, [&](int i) { return nibbles(block + 2, i); });
    set_scales(unit, Half::load(block));
  } else if constexpr (kFormat == BlockFormat::kIq4Xs) {
    uint16_t high;
    std::memcpy(&high, block + 2, sizeof high);
    const int code = (block[4 + u / 2] >> (4 * (u % 2)) & 15) | (high >> (2 * u) & 3) << 4;
    set_codes(unit, [&](int i) { return nibbles(block + 8 + 16 * u, i); });
    set_scales(unit, Half::load(block) * static_cast<float>(code - 32));
  } else {
    static_assert(kFormat == BlockFormat::kMxFp4);
    set_codes(unit, [&](int i) { return nibbles(block + 1, i); });
    set_scales(unit, half_power_of_two(block[0]));
  }
}

// Decodes unit `unit_idx` of a row of blocks.
template <BlockFormat kFormat, class Half>
void decode_row_unit(const uint8_t* row, int64_t unit_idx, BlockUnit& unit) {
  constexpr BlockLayout kLayout = block_layout(kFormat);
  constexpr int kUnits = kLayout.elements / kUnitElements;
  decode_unit<kFormat, Half>(row + unit_idx / kUnits * kLayout.bytes, static_cast<int>(unit_idx % kUnits),
                             unit);
}

// Decodes `num_units` units of a row of blocks, from `first_unit`.
using DecodeRun = void (*)(const uint8_t* row, int64_t first_unit, int num_units, float* to);

// Returns the function of a format, Decoder<format>::run.
template <template <BlockFormat> class Decoder, class Function = DecodeRun>
Function run_decoder(BlockFormat format) {
  using enum BlockFormat;
  constexpr Function kDecoders[] = {&Decoder<kQ4_0>::run, &Decoder<kQ4_1>::run,  &Decoder<kQ5_0>::run,
                                    &Decoder<kQ5_1>::run, &Decoder<kQ8_0>::run,  &Decoder<kQ2K>::run,
                                    &Decoder<kQ3K>::run,  &Decoder<kQ4K>::run,   &Decoder<kQ5K>::run,
                                    &Decoder<kQ6K>::run,  &Decoder<kIq4Nl>::run, &Decoder<kIq4Xs>::run,
                                    &Decoder<kMxFp4>::run};
  return kDecoders[static_cast<int>(format)];
}

}  // namespace
}  // namespace attend::kernels
