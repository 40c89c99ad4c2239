// Units of a weight as vectors of AVX2. Each class has:
//
//   kMaxCode             codes are 0 to kMaxCode; kSignedCodes: -128 to 127
//   kMinima              kNone, kUnits (one per unit) or kHalves
//   begin(out, run, count, scales)  prepares a run and returns its Run
//   unit(run, u)         32 codes
//   half_scales(run, u)  if kHasHalfScales: i16 factors of the unit's halves, for vpmaddwd
//   fetch(out, run)      prefetches the run
//
// Codes with an offset are unsigned where possible, since the offset is then one product per run with the
// sums of x, while signed codes need their sign moved to x in every product.
#pragma once

#include <immintrin.h>

#include "attend/kernels/gemm/cpu/int8/int8_units.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kSignedCodes = 0;
enum class Int8Minima { kNone, kUnits, kHalves };

// Scales and minima of a run's units.
struct RunScales {
  __m256 scales;
  __m256 minima[2];       // of units, or of halves
  __m256 half_scales[2];  // if kHasHalfScales: scales times the factors of each half
};

inline __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Splits 16 bytes: their lower nibbles, then their upper ones.
inline __m256i load_nibbles(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
}

template <class T>
T load_as(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Returns the lanes 0 to 7 that fn(i) returns; those from `count` on are 0. Words are joined in scalar
// registers, since the vector units are the bottleneck, and a vector load of words that were stored one by
// one would wait for the stores.
template <class Fn>
__m128i gather_words(int count, const Fn& fn) {
  if (count == 8) [[likely]] {
    const auto four = [&](int i) {
      return static_cast<int64_t>(uint64_t{fn(i)} | uint64_t{fn(i + 1)} << 16 | uint64_t{fn(i + 2)} << 32 |
                                  uint64_t{fn(i + 3)} << 48);
    };
    return _mm_set_epi64x(four(4), four(0));
  }
  alignas(16) uint16_t words[8] = {};
  for (int i = 0; i < count; ++i) words[i] = fn(i);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(words));
}

// Eight f16 values that are `stride` bytes apart.
inline __m256 load_halves(const uint8_t* p, int stride, int count) {
  return _mm256_cvtph_ps(gather_words(count, [&](int i) { return load_as<uint16_t>(p + i * stride); }));
}

inline __m256 load_half(const uint8_t* p) { return _mm256_cvtph_ps(_mm_set1_epi16(load_as<int16_t>(p))); }

// half_power_of_two() of eight exponents.
inline __m256 half_powers_of_two(__m256i exponents) {
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
  return _mm256_castsi256_ps(
      _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents)));
}

// kNonLinearValues and kTwiceE2M1 + 12 as bytes.
inline __m256i table_bytes(const int8_t (&table)[16]) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}
alignas(16) inline constexpr int8_t kNonLinearBytes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int kE2M1Offset = 12;
alignas(16) inline constexpr int8_t kOffsetE2M1Bytes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                            12, 11, 10, 9,  8,  6,  4,  0};

class BlockUnits {
 public:
  explicit BlockUnits(const LinearPart& part)
      : data_(static_cast<const uint8_t*>(part.weight)), row_bytes_(weight_row_bytes(part)) {}

 protected:
  const uint8_t* at(int64_t out, int64_t bytes) const { return data_ + out * row_bytes_ + bytes; }
  template <int kBytes>
  [[gnu::always_inline]] static void fetch_bytes(const uint8_t* p) {
#pragma GCC unroll 8
    for (int byte = 0; byte < kBytes; byte += 64) __builtin_prefetch(p + byte, 0, 2);
  }

 private:
  const uint8_t* data_;
  int64_t row_bytes_;
};

// Formats with blocks of 32 nibbles, and a fifth bit in some.
template <BlockFormat kFormat>
class NibbleUnits : public BlockUnits {
  using enum BlockFormat;
  static constexpr bool kFiveBits = kFormat == kQ5_0 || kFormat == kQ5_1;
  static constexpr bool kHasMinimum = kFormat == kQ4_1 || kFormat == kQ5_1;
  static constexpr int kBytes = block_layout(kFormat).bytes, kNibbles = kBytes - 16,
                       kFifthBits = kNibbles - 4;

 public:
  static constexpr int kMaxCode = kFormat == kIq4Nl   ? kSignedCodes
                                  : kFormat == kMxFp4 ? 24
                                  : kFiveBits         ? 31
                                                      : 15;
  static constexpr Int8Minima kMinima = kFormat == kIq4Nl ? Int8Minima::kNone : Int8Minima::kUnits;
  static constexpr bool kHasHalfScales = false;
  using Run = const uint8_t*;
  using BlockUnits::BlockUnits;

  Run begin(int64_t out, int64_t run, int count, RunScales& to) const {
    const uint8_t* const p = at(out, run * kInt8RunUnits * kBytes);
    if constexpr (kFormat == kMxFp4) {
      const __m128i exponents = gather_words(count, [&](int i) { return uint16_t{p[i * kBytes]}; });
      to.scales = half_powers_of_two(_mm256_cvtepu16_epi32(exponents));
    } else {
      to.scales = load_halves(p, kBytes, count);
    }
    if constexpr (kHasMinimum)
      to.minima[0] = _mm256_sub_ps(_mm256_setzero_ps(), load_halves(p + 2, kBytes, count));
    else if constexpr (kMinima == Int8Minima::kUnits)
      to.minima[0] =
          _mm256_mul_ps(to.scales, _mm256_set1_ps(kFormat == kMxFp4 ? static_cast<float>(kE2M1Offset)
                                                  : kFiveBits       ? 16.0f
                                                                    : 8.0f));
    return p;
  }
  static __m256i unit(Run run, int u) {
    const uint8_t* const block = run + u * kBytes;
    __m256i codes = load_nibbles(block + kNibbles);
    if constexpr (kFormat == kIq4Nl) codes = _mm256_shuffle_epi8(table_bytes(kNonLinearBytes), codes);
    if constexpr (kFormat == kMxFp4) codes = _mm256_shuffle_epi8(table_bytes(kOffsetE2M1Bytes), codes);
    if constexpr (kFiveBits) codes = _mm256_or_si256(codes, fifth_bits(block + kFifthBits));
    return codes;
  }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
    fetch_bytes<kInt8RunUnits * kBytes>(at(out, run * kInt8RunUnits * kBytes));
  }

 private:
  // Spreads 32 bits to the fifth bits of 32 bytes.
  static __m256i fifth_bits(const uint8_t* p) {
    const __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(load_as<int32_t>(p)),
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask), _mm256_set1_epi8(16));
  }
};

class Q8Units : public BlockUnits {
  static constexpr int kBytes = block_layout(BlockFormat::kQ8_0).bytes;

 public:
  static constexpr int kMaxCode = kSignedCodes;
  static constexpr Int8Minima kMinima = Int8Minima::kNone;
  static constexpr bool kHasHalfScales = false;
  using Run = const uint8_t*;
  using BlockUnits::BlockUnits;

  Run begin(int64_t out, int64_t run, int count, RunScales& to) const {
    const uint8_t* const p = at(out, run * kInt8RunUnits * kBytes);
    to.scales = load_halves(p, kBytes, count);
    return p;
  }
  static __m256i unit(Run run, int u) { return load_bytes(run + u * kBytes + 2); }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
    fetch_bytes<kInt8RunUnits * kBytes>(at(out, run * kInt8RunUnits * kBytes));
  }
};

// Q4_K and Q5_K.
template <BlockFormat kFormat>
class PackedScaleUnits : public BlockUnits {
  static constexpr bool kFiveBits = kFormat == BlockFormat::kQ5K;
  static constexpr int kBytes = block_layout(kFormat).bytes, kNibbles = kBytes - 128;

 public:
  static constexpr int kMaxCode = kFiveBits ? 31 : 15;
  static constexpr Int8Minima kMinima = Int8Minima::kUnits;
  static constexpr bool kHasHalfScales = false;
  using Run = const uint8_t*;
  using BlockUnits::BlockUnits;

  Run begin(int64_t out, int64_t run, int, RunScales& to) const {
    const uint8_t* const p = at(out, run * kBytes);
    uint32_t words[3];
    std::memcpy(words, p + 4, sizeof words);
    constexpr uint32_t kSix = 0x3f3f3f3f, kFour = 0x0f0f0f0f, kTwo = 0x03030303;
    const auto scales = widened_bytes(words[0] & kSix, (words[2] & kFour) | (words[0] >> 6 & kTwo) << 4);
    const auto minima = widened_bytes(words[1] & kSix, (words[2] >> 4 & kFour) | (words[1] >> 6 & kTwo) << 4);
    to.scales = _mm256_mul_ps(load_half(p), scales);
    to.minima[0] = _mm256_mul_ps(load_half(p + 2), minima);
    return p;
  }
  static __m256i unit(Run run, int u) {
    const __m256i bytes = load_bytes(run + kNibbles + 32 * (u / 2));
    const __m256i low =
        _mm256_and_si256(u % 2 == 0 ? bytes : _mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
    if constexpr (!kFiveBits) return low;
    const __m256i high = load_bytes(run + 16);
    const __m256i fifth = u < 4 ? _mm256_slli_epi16(high, 4 - u) : _mm256_srli_epi16(high, u - 4);
    return _mm256_or_si256(low, _mm256_and_si256(fifth, _mm256_set1_epi8(16)));
  }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
    fetch_bytes<kBytes>(at(out, run * kBytes));
  }

 private:
  static __m256 widened_bytes(uint32_t first, uint32_t second) {
    const __m128i bytes =
        _mm_cvtsi64_si128(static_cast<int64_t>(first | static_cast<uint64_t>(second) << 32));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
};

// IQ4_XS: a table of signed values, and scales of 6 bits less 32.
class Iq4XsUnits : public BlockUnits {
  static constexpr int kBytes = block_layout(BlockFormat::kIq4Xs).bytes;

 public:
  static constexpr int kMaxCode = kSignedCodes;
  static constexpr Int8Minima kMinima = Int8Minima::kNone;
  static constexpr bool kHasHalfScales = false;
  using Run = const uint8_t*;
  using BlockUnits::BlockUnits;

  Run begin(int64_t out, int64_t run, int, RunScales& to) const {
    const uint8_t* const p = at(out, run * kBytes);
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<int32_t>(p + 4)), shifts(4));
    const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(load_as<uint16_t>(p + 2)), shifts(2));
    const __m256i codes = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                                          _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    to.scales =
        _mm256_mul_ps(load_half(p), _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(32))));
    return p;
  }
  static __m256i unit(Run run, int u) {
    return _mm256_shuffle_epi8(table_bytes(kNonLinearBytes), load_nibbles(run + 8 + 16 * u));
  }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
    fetch_bytes<kBytes>(at(out, run * kBytes));
  }

 private:
  static __m256i shifts(int step) {
    return _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(step));
  }
};

// Q2_K, Q3_K and Q6_K: integer scales of 16 elements.
template <BlockFormat kFormat>
class HalfScaleUnits : public BlockUnits {
  using enum BlockFormat;
  static constexpr int kBytes = block_layout(kFormat).bytes;
  static constexpr int kHalfAt = kFormat == kQ2K   ? 80
                                 : kFormat == kQ3K ? 108
                                                   : 208;  // position of the f16 scale

 public:
  static constexpr int kMaxCode = kFormat == kQ6K ? 63 : kFormat == kQ3K ? 7 : 3;
  static constexpr Int8Minima kMinima = Int8Minima::kHalves;
  static constexpr bool kHasHalfScales = true;
  struct Run {
    const uint8_t* block;
    __m256i scales[2];  // i16 scales of units 0 to 3 and 4 to 7, in both halves
  };
  using BlockUnits::BlockUnits;

  Run begin(int64_t out, int64_t run, int, RunScales& to) const {
    const uint8_t* const p = at(out, run * kBytes);
    const __m128i scales = load_scales(p);
    to.scales = load_half(p + kHalfAt);
    multiply_halves(to.scales, scales, to.half_scales);
    if constexpr (kFormat == kQ2K) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      multiply_halves(load_half(p + 82), _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15)),
                      to.minima);
    } else {
      const __m256 offset = _mm256_set1_ps(kFormat == kQ3K ? 4.0f : 32.0f);
      for (int half = 0; half < 2; ++half) to.minima[half] = _mm256_mul_ps(to.half_scales[half], offset);
    }
    const __m256i words = _mm256_cvtepi8_epi16(scales);
    return {p,
            {_mm256_permute2x128_si256(words, words, 0x00), _mm256_permute2x128_si256(words, words, 0x11)}};
  }
  static __m256i unit(const Run& run, int u) {
    const int half = u / 4, quarter = u % 4;
    if constexpr (kFormat == kQ6K) {
      const __m256i bytes = load_bytes(run.block + 64 * half + 32 * (quarter % 2));
      const __m256i bits = load_bytes(run.block + 128 + 32 * half);
      return _mm256_or_si256(bits_at(bytes, quarter < 2 ? 0 : 4, 0, 15), bits_at(bits, 2 * quarter, 4, 3));
    } else if constexpr (kFormat == kQ2K) {
      return bits_at(load_bytes(run.block + 16 + 32 * half), 2 * quarter, 0, 3);
    } else {
      const __m256i low = bits_at(load_bytes(run.block + 32 + 32 * half), 2 * quarter, 0, 3);
      return _mm256_or_si256(low, bits_at(load_bytes(run.block), u, 2, 1));
    }
  }
  static __m256i half_scales(const Run& run, int u) {
    const int byte = 4 * (u % 4);  // an i16 for the lower half, then one for the upper half
    const auto lower = static_cast<int16_t>(byte | (byte + 1) << 8),
               upper = static_cast<int16_t>(lower + 0x0202);
    return _mm256_shuffle_epi8(run.scales[u / 4],
                               _mm256_set_m128i(_mm_set1_epi16(upper), _mm_set1_epi16(lower)));
  }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
    fetch_bytes<kBytes>(at(out, run * kBytes));
  }

 private:
  // Moves the bits `mask` of each byte from position `from` to position `to`.
  static __m256i bits_at(__m256i bytes, int from, int to, int mask) {
    const __m256i moved = from < to   ? _mm256_slli_epi16(bytes, to - from)
                          : from > to ? _mm256_srli_epi16(bytes, from - to)
                                      : bytes;
    return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask << to)));
  }
  static __m128i load_scales(const uint8_t* p) {
    if constexpr (kFormat == kQ6K) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 192));
    if constexpr (kFormat == kQ2K)
      return _mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(15));
    // Q3_K: scale s has its lower bits in nibble s, and its upper ones in bits 2 (s / 4) of byte 8 + s % 4.
    constexpr uint32_t kFour = 0x0f0f0f0f, kTwo = 0x03030303;
    const auto a = load_as<uint32_t>(p + 96), b = load_as<uint32_t>(p + 100),
               high = load_as<uint32_t>(p + 104);
    const auto word = [&](uint32_t low, int i) {
      return static_cast<int>((low & kFour) | (high >> 2 * i & kTwo) << 4);
    };
    return _mm_sub_epi8(_mm_setr_epi32(word(a, 0), word(b, 1), word(a >> 4, 2), word(b >> 4, 3)),
                        _mm_set1_epi8(32));
  }
  // Multiplies `factor` by the bytes of each half.
  static void multiply_halves(__m256 factor, __m128i bytes, __m256 (&to)[2]) {
    const __m128i sorted =
        _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    to[0] = _mm256_mul_ps(factor, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sorted)));
    to[1] = _mm256_mul_ps(factor, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(sorted, 8))));
  }
};

// Formats of Hugging Face checkpoints, with separate scales. A run has one group, or 2 or 8 whole ones, or
// others.
class GroupUnits {
 public:
  explicit GroupUnits(const LinearPart& part) : part_(part) {}

 protected:
  // Lane u is the value of unit u's group: fn(group), or fn8(first group) for eight neighboring ones.
  template <class Fn, class Fn8>
  [[gnu::always_inline]] __m256 for_units(int64_t out, int64_t run, int count, const Fn& fn,
                                          const Fn8& fn8) const {
    const WeightGroups& groups = part_.groups;
    const int64_t first = (groups.first_out + out) / groups.group_outs * groups.num_groups;
    if (groups.num_groups == 1) return _mm256_set1_ps(fn(first));
    if (count == kInt8RunUnits) {
      if (groups.group_ins == kInt8UnitInputs) return fn8(first + run * kInt8RunUnits);
      if (groups.group_ins == kInt8RunInputs / 2)
        return _mm256_set_m128(_mm_set1_ps(fn(first + 2 * run + 1)), _mm_set1_ps(fn(first + 2 * run)));
    }
    alignas(32) float values[kInt8RunUnits] = {};
    for_each_group(part_, out, run, count, [&](int u, int64_t group) { values[u] = fn(group); });
    return _mm256_load_ps(values);
  }
  [[gnu::always_inline]] __m256 load_scales(int64_t out, int64_t run, int count) const {
    return for_units(
        out, run, count, [&](int64_t group) { return group_scale(part_.groups, group); },
        [&](int64_t group) { return load_eight_scales(group); });
  }
  const LinearPart& part_;

 private:
  __m256 load_eight_scales(int64_t group) const {
    const auto at = [&](int64_t bytes) {
      return static_cast<const char*>(part_.groups.scales) + group * bytes;
    };
    const auto load_words = [&] { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(2))); };
    switch (part_.groups.scale_dtype) {
      case DType::kF32:
        return _mm256_loadu_ps(reinterpret_cast<const float*>(at(4)));
      case DType::kF16:
        return _mm256_cvtph_ps(load_words());
      case DType::kBF16:
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_words()), 16));
      default:
        return half_powers_of_two(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(1)))));
    }
  }
};

class Int8GroupUnits : public GroupUnits {
 public:
  static constexpr int kMaxCode = kSignedCodes;
  static constexpr Int8Minima kMinima = Int8Minima::kNone;
  static constexpr bool kHasHalfScales = false;
  using Run = const int8_t*;
  using GroupUnits::GroupUnits;

  Run begin(int64_t out, int64_t run, int count, RunScales& to) const {
    to.scales = load_scales(out, run, count);
    return at(out, run);
  }
  static __m256i unit(Run run, int u) { return load_bytes(run + u * kInt8UnitInputs); }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
#pragma GCC unroll 4
    for (int byte = 0; byte < kInt8RunInputs; byte += 64) __builtin_prefetch(at(out, run) + byte, 0, 2);
  }

 private:
  const int8_t* at(int64_t out, int64_t run) const {
    return static_cast<const int8_t*>(part_.weight) + out * part_.in_features + run * kInt8RunInputs;
  }
};

// int4 and mxfp4, with inputs split into the first and the second ones of pairs.
template <bool kMxFp4>
class PairUnits : public GroupUnits {
 public:
  static constexpr int kMaxCode = kMxFp4 ? 24 : 15;
  static constexpr Int8Minima kMinima = Int8Minima::kUnits;
  static constexpr bool kHasHalfScales = false;
  using Run = const uint8_t*;
  using GroupUnits::GroupUnits;

  Run begin(int64_t out, int64_t run, int count, RunScales& to) const {
    to.scales = load_scales(out, run, count);
    const uint8_t* const zeros = part_.groups.zeros;
    __m256 offsets = _mm256_set1_ps(kMxFp4 ? static_cast<float>(kE2M1Offset) : 8.0f);
    if (!kMxFp4 && zeros != nullptr)
      offsets = for_units(
          out, run, count, [&](int64_t group) { return static_cast<float>(zeros[group]); },
          [&](int64_t group) {
            return _mm256_cvtepi32_ps(
                _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros + group))));
          });
    to.minima[0] = _mm256_mul_ps(to.scales, offsets);
    return at(out, run);
  }
  static __m256i unit(Run run, int u) {
    const __m256i codes = load_nibbles(run + u * kInt8UnitInputs / 2);
    if constexpr (kMxFp4) return _mm256_shuffle_epi8(table_bytes(kOffsetE2M1Bytes), codes);
    return codes;
  }
  [[gnu::always_inline]] void fetch(int64_t out, int64_t run) const {
    __builtin_prefetch(at(out, run), 0, 2);
    __builtin_prefetch(at(out, run) + 64, 0, 2);
  }

 private:
  const uint8_t* at(int64_t out, int64_t run) const {
    return static_cast<const uint8_t*>(part_.weight) + (out * part_.in_features + run * kInt8RunInputs) / 2;
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
