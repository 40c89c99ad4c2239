// Quantized values as operands of mma.sync: 16 bytes of a row, loaded by one lane, become pairs of 16-bit
// floats exactly. The caller applies scales to the sums.
//
// The order of inputs within a K-block is free if W and x have the same order. Lane t of the four lanes that
// share a row holds
//
//   8 bits  inputs 16 t .. 16 t + 15 of 64: a step of 16 inputs has four neighbors of each lane; the even
//           and odd bytes of a word are its two pairs
//   4 bits  inputs 32 t .. 32 t + 31 of 128, all in one scale group; the four lanes then exchange words,
//           so that a step has inputs of one group only: 8 t .. 8 t + 7 of each 32, in pairs of values j
//           and j + 4 of a word
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
  static constexpr int kFp8Shift = 4;                                            // left shift of a byte
  static constexpr uint32_t kE2m1Bits = 0x01c001c0u, kE2m1Factor = 0x7e807e80u;  // 2^126
  static constexpr int kE2m1Shift = 6;
  static constexpr uint32_t kIntegers = 0x43004300u;  // 128 with ulp 1: the mantissa counts integers
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

// Exponent and mantissa bits of a narrow format are placed at the top of the wide format's. The value is then
// too small by a power of two, also for the narrow format's subnormals. The product with that power is exact.
template <class T>
__device__ __forceinline__ uint32_t scaled_up(uint32_t bits, uint32_t factor) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hmul2(bits_to_pair<Pair>(bits), bits_to_pair<Pair>(factor)));
}

// Dequantizes bytes 0 and 2 of four e4m3 values.
template <class T>
__device__ __forceinline__ uint32_t dequantize_even_fp8(uint32_t bytes) {
  const uint32_t sign = bytes << 8 & 0x80008000u;
  return scaled_up<T>(sign | (bytes << PairType<T>::kFp8Shift & PairType<T>::kFp8Bits),
                      PairType<T>::kFp8Factor);
}
// Dequantizes bytes 1 and 3 of four e4m3 values.
template <class T>
__device__ __forceinline__ uint32_t dequantize_odd_fp8(uint32_t bytes) {
  const uint32_t sign = bytes & 0x80008000u;
  return scaled_up<T>(sign | (bytes >> (8 - PairType<T>::kFp8Shift) & PairType<T>::kFp8Bits),
                      PairType<T>::kFp8Factor);
}
// Dequantizes two halves that each hold a byte and, above it, eight copies of its sign.
template <class T>
__device__ __forceinline__ uint32_t dequantize_extended_fp8(uint32_t halves) {
  return scaled_up<T>(halves << PairType<T>::kFp8Shift & (0x80008000u | PairType<T>::kFp8Bits),
                      PairType<T>::kFp8Factor);
}
// (a & mask) | bits in one instruction; the compiler emits two.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(result) : "r"(a), "r"(mask), "r"(bits));
  return result;
}
// Dequantizes bytes 0 and 2 of four int8 values: the seven lower bits in the mantissa of kIntegers, minus 128
// if the sign is set.
template <class T>
__device__ __forceinline__ uint32_t dequantize_even_int8(uint32_t bytes) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hsub2(bits_to_pair<Pair>(and_or(bytes, 0x007f007fu, PairType<T>::kIntegers)),
                              bits_to_pair<Pair>(and_or(bytes, 0x00800080u, PairType<T>::kIntegers))));
}
// Values 0 and 4 of eight e2m1 values, or 1 and 5 (kCode = 1), with sign and exponent in T's bit positions:
// too small by 1 / kE2m1Factor.
template <class T, int kCode = 0>
__device__ __forceinline__ uint32_t e2m1_bits(uint32_t codes) {
  constexpr uint32_t kSigns = 0x80008000u;
  if constexpr (PairType<T>::kE2m1Shift == 6) {
    // Copies the value 6 bits apart with a multiplication, which runs in parallel with the masking. Only the
    // sign of the second copy is kept.
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
// 128 + q (bf16) or 1024 + q (f16), for values 0 and 4 of eight.
template <class T>
__device__ __forceinline__ uint32_t shifted_int4(uint32_t codes) {
  return and_or(codes, 0x000f000fu, PairType<T>::kIntegers);
}
// q - zero for values 0 and 4 of eight; `zero` is a result of shifted_zero().
template <class T>
__device__ __forceinline__ uint32_t dequantize_int4(uint32_t codes, uint32_t zero) {
  using Pair = typename PairType<T>::Type;
  return pair_to_bits(__hsub2(bits_to_pair<Pair>(shifted_int4<T>(codes)), bits_to_pair<Pair>(zero)));
}
// A zero point, twice, in the format that dequantize_int4 subtracts.
template <class T>
__device__ __forceinline__ uint32_t shifted_zero(int zero) {
  const uint32_t one = PairType<T>::kFirstInteger + static_cast<uint32_t>(zero);
  return one << 16 | one;
}

// Like shifted_zero(), for byte `i` of a word of zero points.
template <class T>
__device__ __forceinline__ uint32_t shifted_zero_at(uint32_t four, uint32_t i) {
  constexpr uint32_t kOther = 4;  // first byte of the second word
  return __byte_perm(four, PairType<T>::kFirstInteger >> 8, i * 0x0101u | kOther * 0x1010u);
}

// Properties of a format's K-block.
template <WeightFormat kFormat>
struct QuantizedBlock {
  static constexpr bool kFourBits = kFormat == WeightFormat::kInt4 || kFormat == WeightFormat::kMxFp4;
  static constexpr int kInputs = kFourBits ? 128 : 64;
  static constexpr int kParts = kFourBits ? 4 : 1;      // parts of kInputs / kParts inputs that share a scale
  static constexpr int kPartInputs = kInputs / kParts;  // 32, or 64
  static constexpr int kSteps = kPartInputs / 16;       // mma steps
  static constexpr int kLaneInputs = kPartInputs / 4;   // inputs of x per lane and part: 8, or 16
  static constexpr int kInputsPer16Bytes = kFourBits ? 32 : 16;
};

// Exchanges words: word i of lane t of four neighbors becomes word t of lane i.
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

// Dequantizes both pairs of a row's step. 8 bits: word `step` of a lane's 16 bytes. 4 bits: values 2 step, 2
// step + 4 and 2 step + 1, 2 step + 5 of its word. `zero` applies to int4.
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

// Loads the pairs of x that multiply these, from a lane's inputs of a part: 2 kLaneInputs bytes as words.
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
