// Vectors of dequantized values: fp8, int8, and 4 bits through a table of the 16 values. AVX2 and AVX-512
// have faster specializations in their own files.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "attend/kernels/common/block_unit.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr float kInt4Values[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
// E2M1: a sign, two exponent bits, one mantissa bit (OCP MX specification).
inline constexpr float kE2M1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// 2^(exponent - 127), built from the exponent field of a binary32. The smallest one is subnormal in binary32.
inline float power_of_two(uint8_t exponent) {
  return std::bit_cast<float>(exponent == 0 ? 0x00400000u : static_cast<uint32_t>(exponent) << 23);
}

// Inline version of BF16's conversion to float.
inline float widened(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Loads kLanes values divided by kFactor. No value is NaN.
template <class S>
struct Fp8Values {
  using Fp8Value = F8E4M3;
  static constexpr float kFactor = 1.0f;
  // The exponent bias is 120 less than that of binary32.
  static typename S::F32 load(const F8E4M3* p) {
    float values[S::kLanes];
    for (int i = 0; i < S::kLanes; ++i) {
      const uint32_t bits = p[i].bits;
      values[i] = std::bit_cast<float>((bits & 0x80u) << 24 | (bits & 0x7fu) << 20);
    }
    return S::mul(S::load(values), S::set1(0x1p120f));
  }
};

// Like Fp8Values, for int8.
template <class S>
struct Int8Values {
  using Fp8Value = int8_t;
  static constexpr float kFactor = 1.0f;
  static typename S::F32 load(const int8_t* p) {
    float values[S::kLanes];
    for (int i = 0; i < S::kLanes; ++i) values[i] = p[i];
    return S::load(values);
  }
};

// Loads a finite f16 as f32.
template <class S>
struct HalfValue : FiniteHalf {};

// Loads kLanes entries of a table of 16 values, by their indices.
template <class S>
struct TableValues {
  static typename S::F32 load(const int8_t* indices, const float* table) {
    float values[S::kLanes];
    for (int i = 0; i < S::kLanes; ++i) values[i] = table[indices[i]];
    return S::load(values);
  }
};

// Decodes 4-bit values:
//
//   Table                       values of the 16 bit patterns in a group
//   int4(zero, scale), e2m1(scale)
//                               tables of both formats
//   look_up(p, table)           kLanes values, in packed order; a byte holds the lower one first
//   to_packed_order(x)          inputs in packed order; from_packed_order() is the inverse
//   gather(row, order)          row[order[lane]]
//   broadcast(scale)
template <class S>
struct Int4Decoder {
  using F32 = typename S::F32;
  struct Table {
    float values[16];
  };

  static Table int4(uint8_t zero, F32 scale) {
    return of(kInt4Values, [&](F32 v) { return S::mul(S::sub(v, S::set1(zero)), scale); });
  }
  static Table e2m1(F32 scale) {
    return of(kE2M1Values, [&](F32 v) { return S::mul(v, scale); });
  }
  static F32 look_up(const uint8_t* p, const Table& table) {
    float values[S::kLanes];
    for (int i = 0; i < S::kLanes; ++i) values[i] = table.values[p[i / 2] >> (i % 2 * 4) & 15];
    return S::load(values);
  }
  static F32 to_packed_order(F32 x) { return x; }
  static F32 from_packed_order(F32 x) { return x; }
  static F32 gather(const float* row, const int32_t* order) {
    float values[S::kLanes];
    for (int i = 0; i < S::kLanes; ++i) values[i] = row[order[i]];
    return S::load(values);
  }
  static F32 broadcast(F16 x) { return S::set1(static_cast<float>(x)); }

 private:
  template <class Fn>
  static Table of(const float (&values)[16], const Fn& fn) {
    Table made;
    for (int i = 0; i < 16; i += S::kLanes) S::store(made.values + i, fn(S::load(values + i)));
    return made;
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
