// Codes of a quantized weight as the factors of mma.sync: what a lane loads, 16 bytes of a row at once,
// becomes pairs of 16-bit numbers, exactly; scales are left to who sums the products.
//
// The order of inputs within a K-block is free as long as W and x have the same. Lane t of the four that
// share a row takes
//
//   8 bits  inputs 16 t .. 16 t + 15 of 64: a step of 16 inputs has four neighbors of each lane, whose even
//           and odd bytes are a word's two pairs
//   4 bits  inputs 32 t .. 32 t + 31 of 128, all of one group of scales; the four lanes then exchange words,
//           so that a step has inputs of one group alone: 8 t .. 8 t + 7 of each 32, in pairs of a word's
//           codes j and j + 4
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attend/tensor/weight.h"

namespace attend::kernels::cuda {

// 16-bit arithmetic on pairs, by type.
template <class T>
struct PairType;
template <>
struct PairType<__nv_bfloat16> {
  using Type = __nv_bfloat162;
  static constexpr uint32_t kFp8Bits = 0x07f007f0u, kFp8Factor = 0x7b807b80u;    // 2^120
  static constexpr int kFp8Shift = 4;                                            // left of a byte's place
  static constexpr uint32_t kE2m1Bits = 0x01c001c0u, kE2m1Factor = 0x7e807e80u;  // 2^126
  static constexpr int kE2m1Shift = 6;
  static constexpr uint32_t kIntegers = 0x43004300u;  // 128, behind which the mantissa counts ones
  static constexpr uint32_t kFirstInteger = 0x4300u;
};
template <>
struct PairType<__half> {
  using Type = __half2;
  static constexpr uint32_t kFp8Bits = 0x3f803f80u, kFp8Factor = 0x5c005c00u;  // 2^8
  static constexpr int kFp8Shift = 7;
  static constexpr uint32_t kE2m1Bits = 0x0e000e00u, kE2m1Factor = 0x74007400u;  // 2^14
  static constexpr int kE2m1Shift = 9;
  static constexpr uint32_t kIntegers = 0x64006400u;  // 1024
  static constexpr uint32_t kFirstInteger = 0x6400u;
};

template <class Pair>
__device__ __forceinline__ Pair bits_to_pair(uint32_t bits) {
  return *reinterpret_cast<Pair*>(&bits);
}
template <class Pair>
__device__ __forceinline__ uint32_t pair_to_bits(Pair pair) {
  return *reinterpret_cast<uint32_t*>(&pair);
}

// Exponent and mantissa of a narrow format stand where the wide one's begin, so the number is too small by a
// power of two, numbers below the narrow format's normal ones too; the product with that power is exact.
template <class T>
__device__ __forceinline__ uint32_t scaled_up(uint32_t bits, uint32_t factor) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hmul2(bits_to_pair<Pair>(bits), bits_to_pair<Pair>(factor)));
}

// The numbers of bytes 0 and 2 of four in e4m3.
template <class T>
__device__ __forceinline__ uint32_t dequantize_even_fp8(uint32_t bytes) {
  const uint32_t sign = bytes << 8 & 0x80008000u;
  return scaled_up<T>(sign | (bytes << PairType<T>::kFp8Shift & PairType<T>::kFp8Bits),
                      PairType<T>::kFp8Factor);
}
// Of bytes 1 and 3.
template <class T>
__device__ __forceinline__ uint32_t dequantize_odd_fp8(uint32_t bytes) {
  const uint32_t sign = bytes & 0x80008000u;
  return scaled_up<T>(sign | (bytes >> (8 - PairType<T>::kFp8Shift) & PairType<T>::kFp8Bits),
                      PairType<T>::kFp8Factor);
}
// Of two halves that each hold a byte and, above it, eight copies of its sign.
template <class T>
__device__ __forceinline__ uint32_t dequantize_extended_fp8(uint32_t halves) {
  return scaled_up<T>(halves << PairType<T>::kFp8Shift & (0x80008000u | PairType<T>::kFp8Bits),
                      PairType<T>::kFp8Factor);
}
// (a & mask) | bits, in one instruction: the compiler makes two of it.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(result) : "r"(a), "r"(mask), "r"(bits));
  return result;
}
// The numbers of bytes 0 and 2 of four in int8: of each the seven lower bits less 128 where the sign is set,
// both behind kIntegers.
template <class T>
__device__ __forceinline__ uint32_t dequantize_even_int8(uint32_t bytes) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hsub2(bits_to_pair<Pair>(and_or(bytes, 0x007f007fu, PairType<T>::kIntegers)),
                              bits_to_pair<Pair>(and_or(bytes, 0x00800080u, PairType<T>::kIntegers))));
}
// Codes 0 and 4 of eight in e2m1, or 1 and 5 (kCode), with sign and exponent where T has them: smaller by
// 1 / kE2m1Factor.
template <class T, int kCode = 0>
__device__ __forceinline__ uint32_t e2m1_bits(uint32_t codes) {
  constexpr uint32_t kSigns = 0x80008000u;
  if constexpr (PairType<T>::kE2m1Shift == 6) {
    // Twice, 6 bits apart, by a multiplication, which runs beside what masks; of one copy the sign is left.
    constexpr uint32_t kTwice = 0x1040u;
    return (codes & 0x000f000fu << 4 * kCode) * (kTwice >> 4 * kCode) & (kSigns | PairType<T>::kE2m1Bits);
  }
  codes >>= 4 * kCode;
  return (codes << 12 & kSigns) | (codes << PairType<T>::kE2m1Shift & PairType<T>::kE2m1Bits);
}
template <class T, int kCode = 0>
__device__ __forceinline__ uint32_t dequantize_e2m1(uint32_t codes) {
  return scaled_up<T>(e2m1_bits<T, kCode>(codes), PairType<T>::kE2m1Factor);
}
// 128 + q (bf16), or 1024 + q, of codes 0 and 4 of eight.
template <class T>
__device__ __forceinline__ uint32_t shifted_int4(uint32_t codes) {
  return and_or(codes, 0x000f000fu, PairType<T>::kIntegers);
}
// q - zero of codes 0 and 4 of eight; `zero` as shifted_zero().
template <class T>
__device__ __forceinline__ uint32_t dequantize_int4(uint32_t codes, uint32_t zero) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hsub2(bits_to_pair<Pair>(shifted_int4<T>(codes)), bits_to_pair<Pair>(zero)));
}
// A zero point, twice, where dequantize_int4 has its codes.
template <class T>
__device__ __forceinline__ uint32_t shifted_zero(int zero) {
  const uint32_t one = PairType<T>::kFirstInteger + static_cast<uint32_t>(zero);
  return one << 16 | one;
}

// The same of byte `i` of a word of zero points.
template <class T>
__device__ __forceinline__ uint32_t shifted_zero_at(uint32_t four, uint32_t i) {
  constexpr uint32_t kOther = 4;  // the first byte of the second word
  return __byte_perm(four, PairType<T>::kFirstInteger >> 8, i * 0x0101u | kOther * 0x1010u);
}

// What a format has of a K-block.
template <WeightFormat kFormat>
struct QuantizedBlock {
  static constexpr bool kFourBits = kFormat == WeightFormat::kInt4 || kFormat == WeightFormat::kMxFp4;
  static constexpr int kInputs = kFourBits ? 128 : 64;
  static constexpr int kParts = kFourBits ? 4 : 1;      // of kInputs / kParts inputs that share a scale
  static constexpr int kPartInputs = kInputs / kParts;  // 32, or 64
  static constexpr int kSteps = kPartInputs / 16;       // of mma
  static constexpr int kLaneInputs = kPartInputs / 4;   // of a part, of x: 8, or 16
  static constexpr int kInputsPer16Bytes = kFourBits ? 32 : 16;
};

// Word i of lane t of four neighbors becomes word t of lane i.
__device__ __forceinline__ void exchange_words(uint32_t (&words)[4], int lane) {
  const bool odd = (lane & 1) != 0, high = (lane & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? got : words[i];
    words[i + 1] = odd ? words[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? words[i] : words[i + 2], 2);
    words[i] = high ? got : words[i];
    words[i + 2] = high ? words[i + 2] : got;
  }
}

// Both pairs of a step of a row: of 8 bits those of word `step` of a lane's 16 bytes, of 4 bits those of
// codes 2 step, 2 step + 4 and 2 step + 1, 2 step + 5 of its word. `zero`: of int4.
template <class T, WeightFormat kFormat>
__device__ __forceinline__ void dequantize_step(uint32_t word, int step, uint32_t zero, uint32_t& first,
                                                uint32_t& second) {
  if constexpr (kFormat == WeightFormat::kFp8) {
    first = dequantize_even_fp8<T>(word);
    second = dequantize_odd_fp8<T>(word);
  } else if constexpr (kFormat == WeightFormat::kInt8) {
    first = dequantize_even_int8<T>(word);
    second = dequantize_even_int8<T>(word >> 8);
  } else {
    const uint32_t codes = word >> (8 * step);
    first = kFormat == WeightFormat::kInt4 ? dequantize_int4<T>(codes, zero) : dequantize_e2m1<T>(codes);
    second =
        kFormat == WeightFormat::kInt4 ? dequantize_int4<T>(codes >> 4, zero) : dequantize_e2m1<T, 1>(codes);
  }
}

// The pairs of x that belong to these, of a lane's inputs of a part: 2 kLaneInputs bytes as words.
template <WeightFormat kFormat>
__device__ __forceinline__ void load_x_pairs(
    const uint32_t (&words)[QuantizedBlock<kFormat>::kLaneInputs / 2], int step, uint32_t& first,
    uint32_t& second) {
  const uint32_t low = words[QuantizedBlock<kFormat>::kFourBits ? step : 2 * step];
  const uint32_t high = words[QuantizedBlock<kFormat>::kFourBits ? step + 2 : 2 * step + 1];
  first = __byte_perm(low, high, 0x5410);
  second = __byte_perm(low, high, 0x7632);
}

}  // namespace attend::kernels::cuda
