// Vector types of the CPU kernels. Each instruction set has a struct S with this interface:
//
//   S::F32, S::kLanes            a vector of floats
//   S::kRegisters                number of vector registers
//   S::kTileRows, S::kTileVecs   the microkernel that fills the registers (tile_multiply.h)
//   zero, set1, add, sub, mul, div, fma(a, b, c) = a * b + c, abs, copy_sign, round (to nearest)
//   min(a, b), max(a, b)         b if either is NaN
//   times_pow2(x, n)             x * 2^n for integers n in [-126, 127]
//   exponent_pow2(x)             the largest power of two up to |x|; 0 below 2^-126
//   keep(bits, x, otherwise)     lane i of x if bit i is set
//   if_less(a, b, x, otherwise), if_nan(a, x, otherwise)
//   reduce_add, reduce_max
//   load(p), load_first(p, n)    kLanes elements, or n and then zeros, of any float type, converted
//   store(p, x), store_first     to floats; the first n to f32, f16, bf16 (rounded to nearest even)
//   transpose(rows)              kLanes vectors
//   reduce_add_lanes(x)          lane i is the sum of the lanes of x[i]
//   load_block(p, a, b), load_block_first(p, n, a, b)
//                                2 kLanes elements, in the order that is cheapest for the type
//   to_block_order<T>(a, b)      converts the natural order to that of load_block
//   from_block_order<T>(a, b)    the inverse
//
// The headers of kernels are compiled once per instruction set. Their unnamed namespaces keep the copies of
// each translation unit separate. Otherwise the linker could keep a single copy that only the newest CPU can
// run. For the same reason they do not use inline functions of other headers that compute with floats.
#pragma once

#include <type_traits>

#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {
namespace {

// Returns e^x for x <= 0. Relative error below 1e-7; 0 below -87.3, where the result would be a denormal;
// exactly 1 at 0. NaN stays NaN.
//
// e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; e^r = 1 + r + r^2 Q(r), Q fitted at the
// Chebyshev nodes (error 1e-8).
template <class S>
typename S::F32 exp_nonpositive(typename S::F32 x) {
  using F32 = typename S::F32;
  const F32 smallest = S::set1(-87.3f);
  const F32 clamped = S::max(smallest, x);
  const F32 n = S::round(S::mul(clamped, S::set1(1.44269504f)));
  // ln 2 in two parts: the first has few enough bits that n times it is exact.
  const F32 r = S::fma(n, S::set1(2.12194440e-4f), S::fma(n, S::set1(-0.693359375f), clamped));
  F32 q = S::set1(1.392618359e-3f);
  q = S::fma(q, r, S::set1(8.363179053e-3f));
  q = S::fma(q, r, S::set1(4.166655462e-2f));
  q = S::fma(q, r, S::set1(1.666657699e-1f));
  q = S::fma(q, r, S::set1(0.5f));
  const F32 e = S::times_pow2(S::add(S::set1(1.0f), S::fma(S::mul(r, r), q, r)), n);
  return S::if_less(x, smallest, S::zero(), e);
}

// Returns tanh(x). Relative error below 2e-7.
//
// Up to 0.625: x + x^3 T(x^2), T fitted at the Chebyshev nodes (error 2e-8). Above: (1 - e) / (1 + e) with e
// = e^(-2 |x|), where the cancellation in 1 - e is harmless.
template <class S>
typename S::F32 tanh(typename S::F32 x) {
  using F32 = typename S::F32;
  const F32 magnitude = S::abs(x);
  const F32 u = S::mul(x, x);
  F32 t = S::set1(-6.096714166e-3f);
  t = S::fma(t, u, S::set1(2.099717900e-2f));
  t = S::fma(t, u, S::set1(-5.385090958e-2f));
  t = S::fma(t, u, S::set1(1.333276974e-1f));
  t = S::fma(t, u, S::set1(-3.333332894e-1f));
  const F32 near = S::fma(S::mul(magnitude, u), t, magnitude);
  const F32 e = exp_nonpositive<S>(S::mul(magnitude, S::set1(-2.0f)));
  const F32 far = S::div(S::sub(S::set1(1.0f), e), S::add(S::set1(1.0f), e));
  return S::copy_sign(S::if_less(magnitude, S::set1(0.625f), near, far), x);
}

// Rounds to nearest even to kMantissa mantissa bits, with `smallest_normal` as the smallest normal magnitude;
// saturates at `largest`.
//
// The sum with 2^(23 - kMantissa) times the value's power of two keeps exactly the required bits.
template <class S, int kMantissa>
typename S::F32 round_mantissa(typename S::F32 x, float smallest_normal, float largest) {
  using F32 = typename S::F32;
  const F32 magnitude = S::min(S::abs(x), S::set1(largest));
  const F32 power = S::max(S::exponent_pow2(magnitude), S::set1(smallest_normal));
  const F32 shift = S::mul(power, S::set1(static_cast<float>(1 << (23 - kMantissa))));
  const F32 rounded = S::sub(S::add(magnitude, shift), shift);
  return S::copy_sign(S::if_nan(x, x, rounded), x);
}

// Stores the first n lanes as T, exactly like the conversion T(float).
template <class S, class T>
void store_as(T* p, typename S::F32 x, int n) {
  if constexpr (!requires { S::store_first_byte(p, x, 0, n); }) {
    S::store_first(p, x, n);
  } else if constexpr (std::is_same_v<T, F8E4M3>) {
    const auto rounded = round_mantissa<S, 3>(x, 0x1p-6f, 448.0f);
    // The exponent biases of E4M3 and float16 differ by 8; NaN in E4M3 has the bits of 480.
    const auto shifted = S::mul(S::if_nan(x, S::copy_sign(S::set1(480.0f), x), rounded), S::set1(0x1p-8f));
    S::store_first_byte(p, shifted, 7, n);
  } else if constexpr (std::is_same_v<T, F8E5M2>) {
    S::store_first_byte(p, round_mantissa<S, 2>(x, 0x1p-14f, 57344.0f), 8, n);
  } else {
    S::store_first(p, x, n);
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
