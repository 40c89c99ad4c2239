// Vectors of 4 floats in plain C++ (the compilers' vector extension: two-operand math on any machine), with
// the interface of simd.h. Rare conversions use the value types of tensor/dtype.h.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

struct Portable {
  using F32 = float __attribute__((vector_size(16)));
  using U32 = uint32_t __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  // A microkernel holds 4 x 2 sums, 2 vectors of b and 1 of a: 11 of 16 registers.
  static constexpr int kTileRows = 4;
  static constexpr int kTileVecs = 2;
  static constexpr int kRegisters = 16;

  static F32 zero() { return F32{}; }
  static F32 set1(float x) { return F32{x, x, x, x}; }
  static F32 add(F32 a, F32 b) { return a + b; }
  static F32 sub(F32 a, F32 b) { return a - b; }
  static F32 mul(F32 a, F32 b) { return a * b; }
  static F32 div(F32 a, F32 b) { return a / b; }
  // Returns the second operand if either is NaN, like the x86 instructions.
  static F32 min(F32 a, F32 b) { return a < b ? a : b; }
  static F32 max(F32 a, F32 b) { return a > b ? a : b; }
  static F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }
  static F32 abs(F32 x) { return as_f32(as_u32(x) & 0x7fffffffu); }
  static F32 copy_sign(F32 magnitude, F32 sign) {
    return as_f32(as_u32(magnitude) | (as_u32(sign) & 0x80000000u));
  }
  // Rounds to the nearest integer for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction bits.
  static F32 round(F32 x) {
    const F32 magic = set1(12582912.0f);
    return (x + magic) - magic;
  }
  static F32 times_pow2(F32 x, F32 n) {
    return x * as_f32(std::bit_cast<U32>(__builtin_convertvector(n, Int) + 127) << 23);
  }
  static F32 exponent_pow2(F32 x) { return as_f32(as_u32(x) & 0x7f800000u); }
  static F32 keep(uint64_t bits, F32 x, F32 if_false) {
    F32 kept;
    for (int i = 0; i < kLanes; ++i) kept[i] = (bits >> i) & 1 ? x[i] : if_false[i];
    return kept;
  }
  static F32 if_less(F32 a, F32 b, F32 x, F32 if_false) { return a < b ? x : if_false; }
  static F32 if_nan(F32 a, F32 x, F32 if_false) { return a != a ? x : if_false; }
  static float reduce_max(F32 x) {
    const float low = x[0] > x[1] ? x[0] : x[1], high = x[2] > x[3] ? x[2] : x[3];
    return low > high ? low : high;
  }
  static float reduce_add(F32 x) { return (x[0] + x[1]) + (x[2] + x[3]); }

  static F32 load(const float* p) {
    F32 x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static F32 load(const BF16* p) { return as_f32(U32{p[0].bits, p[1].bits, p[2].bits, p[3].bits} << 16); }
  // The exponent bias of binary16 is 112 less than that of binary32; infinities and NaN keep their exponent.
  static F32 load(const F16* p) {
    const U32 half = {p[0].bits, p[1].bits, p[2].bits, p[3].bits};
    const F32 scaled = as_f32((half & 0x7fffu) << 13) * set1(0x1p112f);
    const U32 special = std::bit_cast<U32>((half & 0x7c00u) == 0x7c00u) & 0x7f800000u;
    return as_f32(as_u32(scaled) | special | (half & 0x8000u) << 16);
  }
  static F32 load(const F8E4M3* p) { return load_each(p, 4); }
  static F32 load(const F8E5M2* p) { return load_each(p, 4); }

  template <class T>
  static F32 load_first(const T* p, int n) {
    return n == kLanes ? load(p) : load_each(p, n);
  }

  // Loads 2 kLanes elements.
  template <class T>
  static void load_block(const T* p, F32& a, F32& b) {
    a = load(p);
    b = load(p + kLanes);
  }
  template <class T>
  static void load_block_first(const T* p, int n, F32& a, F32& b) {
    a = load_first(p, n < kLanes ? n : kLanes);
    b = n <= kLanes ? zero() : load_first(p + kLanes, n - kLanes);
  }
  template <class T>
  static void to_block_order(F32&, F32&) {}
  template <class T>
  static void from_block_order(F32&, F32&) {}

  static void store(float* p, F32 x) { std::memcpy(p, &x, sizeof x); }
  template <class T>
  static void store_first(T* p, F32 x, int n) {
    for (int i = 0; i < n; ++i) p[i] = T(x[i]);
  }

  // rows[i] lane j becomes rows[j] lane i.
  static void transpose(F32 (&rows)[kLanes]) {
    const F32 a = rows[0], b = rows[1], c = rows[2], d = rows[3];
    for (int i = 0; i < kLanes; ++i) rows[i] = F32{a[i], b[i], c[i], d[i]};
  }

  // Lane i is the sum of the lanes of x[i].
  static F32 reduce_add_lanes(F32 (&x)[kLanes]) {
    return F32{reduce_add(x[0]), reduce_add(x[1]), reduce_add(x[2]), reduce_add(x[3])};
  }

 private:
  using Int = int32_t __attribute__((vector_size(16)));

  static F32 as_f32(U32 bits) { return std::bit_cast<F32>(bits); }
  static U32 as_u32(F32 x) { return std::bit_cast<U32>(x); }

  template <class T>
  static F32 load_each(const T* p, int n) {
    F32 x = zero();
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(p[i]);
    return x;
  }
};

}  // namespace
}  // namespace attend::kernels::cpu
