// ElementwiseKernels written in the vectors of simd.h.
#pragma once

#include <cmath>

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/norm_rope/cpu/elementwise_kernels.h"
#include "attend/kernels/norm_rope/gelu.h"

namespace attend::kernels::cpu {
namespace {

template <class S>
void widen_row(const void* from, DType dtype, float* to, int64_t n) {
  visit_weight(from, dtype, [&](const auto* elements) {
    for_each_vector<S>(
        n, [&](int64_t i, int count) { S::store_first(to + i, S::load_first(elements + i, count), count); });
  });
}

template <class S>
void add_row(float* residual, const float* x, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(residual + i, S::add(S::load_first(residual + i, count), S::load_first(x + i, count)),
                   count);
  });
}

// In four vectors of sums, which are independent and short.
template <class S>
float sum_of_squares(const float* x, int64_t n) {
  typename S::F32 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
  int64_t i = 0;
  for (; i + 4 * S::kLanes <= n; i += 4 * S::kLanes)
    for (int j = 0; j < 4; ++j) {
      const auto elements = S::load(x + i + j * S::kLanes);
      sums[j] = S::fma(elements, elements, sums[j]);
    }
  for_each_vector<S>(n - i, [&](int64_t rest, int count) {
    const auto elements = S::load_first(x + i + rest, count);
    sums[0] = S::fma(elements, elements, sums[0]);
  });
  return S::reduce_add(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])));
}

template <class S>
void rms_norm_row(const float* x, const void* weight, DType dtype, float weight_offset, float eps, float* out,
                  int64_t n) {
  const double mean = static_cast<double>(sum_of_squares<S>(x, n)) / static_cast<double>(n);
  const auto factor = S::set1(static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps))));
  const auto offset = S::set1(weight_offset);
  visit_weight(weight, dtype, [&](const auto* weights) {
    for_each_vector<S>(n, [&](int64_t i, int count) {
      const auto scaled = S::mul(S::load_first(x + i, count), factor);
      S::store_first(out + i, S::mul(scaled, S::add(S::load_first(weights + i, count), offset)), count);
    });
  });
}

// x / (1 + e^-t), through e^-|t|, which can not overflow: for negative t it is x e^-|t| / (1 + e^-|t|).
template <class S>
typename S::F32 times_sigmoid(typename S::F32 x, typename S::F32 t) {
  const auto one = S::set1(1.0f);
  const auto e = exp_nonpositive<S>(S::sub(S::zero(), S::abs(t)));
  const auto numerator = S::if_less(t, S::zero(), e, one);
  return S::div(S::mul(x, numerator), S::add(one, e));
}

template <class S>
typename S::F32 silu(typename S::F32 gate) {
  return times_sigmoid<S>(gate, gate);
}

// (1 + tanh(u)) / 2 is the sigmoid of 2 u.
template <class S>
typename S::F32 gelu_tanh(typename S::F32 gate) {
  const auto cubic = S::mul(S::set1(kGeluCubic), S::mul(gate, S::mul(gate, gate)));
  return times_sigmoid<S>(gate, S::mul(S::set1(2.0f * kGeluScale), S::add(gate, cubic)));
}

template <class S, auto kActivation>
void gate_row(const float* gate, const float* up, float* out, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(out + i, S::mul(kActivation(S::load_first(gate + i, count)), S::load_first(up + i, count)),
                   count);
  });
}

// What is not a number stays so: min and max give their second operand then.
template <class S>
void clamped_swiglu_row(const float* gate, const float* up, float* out, float limit, float alpha, int64_t n) {
  const auto one = S::set1(1.0f), high = S::set1(limit), low = S::set1(-limit), slope = S::set1(alpha);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    const auto g = S::min(high, S::load_first(gate + i, count));
    const auto u = S::max(low, S::min(high, S::load_first(up + i, count)));
    S::store_first(out + i, times_sigmoid<S>(S::mul(S::add(u, one), g), S::mul(slope, g)), count);
  });
}

template <class S>
void scale_row(float* x, float scale, int64_t n) {
  const auto factor = S::set1(scale);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, S::mul(S::load_first(x + i, count), factor), count);
  });
}

template <class S>
void soft_cap_row(float* x, float cap, int64_t n) {
  const auto largest = S::set1(cap);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, S::mul(largest, tanh<S>(S::div(S::load_first(x + i, count), largest))), count);
  });
}

// Rounds as rotate() does, where fma() is one rounding.
template <class S>
void rotate_row(float* low, float* high, const float* cos, const float* sin, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    const auto a = S::load_first(low + i, count), b = S::load_first(high + i, count);
    const auto c = S::load_first(cos + i, count), s = S::load_first(sin + i, count);
    const auto minus_s = S::mul(S::set1(-1.0f), s);
    S::store_first(low + i, S::fma(a, c, S::mul(b, minus_s)), count);
    S::store_first(high + i, S::fma(b, c, S::mul(a, s)), count);
  });
}

template <class S>
ElementwiseKernels elementwise_kernels_of() {
  return {.widen = &widen_row<S>,
          .add = &add_row<S>,
          .rms_norm = &rms_norm_row<S>,
          .silu_mul = &gate_row<S, silu<S>>,
          .gelu_tanh_mul = &gate_row<S, gelu_tanh<S>>,
          .clamped_swiglu = &clamped_swiglu_row<S>,
          .scale = &scale_row<S>,
          .soft_cap = &soft_cap_row<S>,
          .rotate = &rotate_row<S>};
}

}  // namespace
}  // namespace attend::kernels::cpu
