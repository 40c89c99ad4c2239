// ElementwiseKernels in the vectors of simd.h.
#pragma once

#include <cmath>

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/norm_rope/cpu/elementwise_kernels.h"
#include "attend/kernels/norm_rope/gelu.h"

namespace attend::kernels::cpu {
namespace {

template <class S>
void convert_row_to_f32(const void* from, DType dtype, float* to, int64_t n) {
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

template <class S>
void add_weights_row(float* residual, const void* x, DType dtype, int64_t n) {
  visit_weight(x, dtype, [&](const auto* elements) {
    for_each_vector<S>(n, [&](int64_t i, int count) {
      const auto sum = S::add(S::load_first(residual + i, count), S::load_first(elements + i, count));
      S::store_first(residual + i, sum, count);
    });
  });
}

// Reduces a row with sum = add(elements, sum) in four independent vectors of sums. Elements past the row's
// end are loaded as 0.
template <class S, class Add>
float reduce_row(const float* x, int64_t n, const Add& add) {
  typename S::F32 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
  int64_t i = 0;
  for (; i + 4 * S::kLanes <= n; i += 4 * S::kLanes)
    for (int j = 0; j < 4; ++j) sums[j] = add(S::load(x + i + j * S::kLanes), sums[j]);
  for_each_vector<S>(
      n - i, [&](int64_t rest, int count) { sums[0] = add(S::load_first(x + i + rest, count), sums[0]); });
  return S::reduce_add(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])));
}

template <class S>
float sum_of_squares(const float* x, int64_t n) {
  return reduce_row<S>(x, n, [](auto elements, auto sum) { return S::fma(elements, elements, sum); });
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

// First writes the row minus its mean; the variance is the mean of the squares of these values.
template <class S>
void layer_norm_row(const float* x, const void* weight, const void* bias, DType dtype, float eps, float* out,
                    int64_t n) {
  const double sum = static_cast<double>(
      reduce_row<S>(x, n, [](auto elements, auto total) { return S::add(elements, total); }));
  const auto mean = S::set1(static_cast<float>(sum / static_cast<double>(n)));
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(out + i, S::sub(S::load_first(x + i, count), mean), count);
  });
  const double variance = static_cast<double>(sum_of_squares<S>(out, n)) / static_cast<double>(n);
  const auto factor = S::set1(static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(eps))));
  visit_weight(weight, dtype, [&](const auto* weights) {
    const auto* const biases = static_cast<decltype(weights)>(bias);
    for_each_vector<S>(n, [&](int64_t i, int count) {
      auto scaled = S::mul(S::load_first(out + i, count), factor);
      if (weights != nullptr && biases != nullptr)
        scaled = S::fma(scaled, S::load_first(weights + i, count), S::load_first(biases + i, count));
      else if (weights != nullptr)
        scaled = S::mul(scaled, S::load_first(weights + i, count));
      else if (biases != nullptr)
        scaled = S::add(scaled, S::load_first(biases + i, count));
      S::store_first(out + i, scaled, count);
    });
  });
}

// x / (1 + e^-t), computed from e^-|t|, which cannot overflow: for negative t it is x e^-|t| / (1 + e^-|t|).
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

// x Phi(x). With z = |x| / sqrt(2): Phi is erfc(z) / 2 for negative x and 1 - erfc(z) / 2 otherwise. erfc(z)
// is e^(-z^2) times a polynomial of 1 / (1 + p z) (Abramowitz and Stegun, 7.1.26; error below 1.5e-7).
template <class S>
typename S::F32 gelu(typename S::F32 x) {
  const auto one = S::set1(1.0f);
  const auto z = S::mul(S::abs(x), S::set1(0.70710678f));
  const auto t = S::div(one, S::fma(z, S::set1(0.3275911f), one));
  auto q = S::set1(1.061405429f);
  q = S::fma(q, t, S::set1(-1.453152027f));
  q = S::fma(q, t, S::set1(1.421413741f));
  q = S::fma(q, t, S::set1(-0.284496736f));
  q = S::fma(q, t, S::set1(0.254829592f));
  const auto e = exp_nonpositive<S>(S::mul(z, S::sub(S::zero(), z)));
  const auto tail = S::mul(S::set1(0.5f), S::mul(S::mul(q, t), e));
  return S::mul(x, S::if_less(x, S::zero(), tail, S::sub(one, tail)));
}

// NaN stays NaN.
template <class S>
typename S::F32 relu(typename S::F32 x) {
  return S::if_less(x, S::zero(), S::zero(), x);
}

template <class S>
typename S::F32 relu2(typename S::F32 x) {
  return S::mul(x, S::if_less(x, S::zero(), S::zero(), x));
}

template <class S, auto kActivation>
void activate_row(float* x, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, kActivation(S::load_first(x + i, count)), count);
  });
}

template <class S, auto kActivation>
void gate_row(const float* gate, const float* up, float* out, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(out + i, S::mul(kActivation(S::load_first(gate + i, count)), S::load_first(up + i, count)),
                   count);
  });
}

// NaN stays NaN: min and max return their second operand then.
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
void sigmoid_mul_row(const float* gate, float* x, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, times_sigmoid<S>(S::load_first(x + i, count), S::load_first(gate + i, count)),
                   count);
  });
}

template <class S>
void multiply_row(const float* factor, float* x, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, S::mul(S::load_first(x + i, count), S::load_first(factor + i, count)), count);
  });
}

template <class S>
void scale_row(float* x, float scale, int64_t n) {
  const auto factor = S::set1(scale);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, S::mul(S::load_first(x + i, count), factor), count);
  });
}

// NaN stays NaN.
template <class S>
void clamp_row(float* x, float limit, int64_t n) {
  const auto low = S::set1(-limit), high = S::set1(limit);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    const auto at_least_low = S::if_less(S::load_first(x + i, count), low, low, S::load_first(x + i, count));
    S::store_first(x + i, S::if_less(high, at_least_low, high, at_least_low), count);
  });
}

template <class S>
void soft_cap_row(float* x, float cap, int64_t n) {
  const auto largest = S::set1(cap);
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, S::mul(largest, tanh<S>(S::div(S::load_first(x + i, count), largest))), count);
  });
}

// Rounds like rotate() if fma() rounds once.
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
ElementwiseKernels make_elementwise_kernels() {
  return {.widen = &convert_row_to_f32<S>,
          .add = &add_row<S>,
          .add_weights = &add_weights_row<S>,
          .rms_norm = &rms_norm_row<S>,
          .layer_norm = &layer_norm_row<S>,
          .silu_mul = &gate_row<S, silu<S>>,
          .gelu_mul = &gate_row<S, gelu<S>>,
          .gelu_tanh_mul = &gate_row<S, gelu_tanh<S>>,
          .gelu = &activate_row<S, gelu<S>>,
          .gelu_tanh = &activate_row<S, gelu_tanh<S>>,
          .relu = &activate_row<S, relu<S>>,
          .relu2 = &activate_row<S, relu2<S>>,
          .silu = &activate_row<S, silu<S>>,
          .clamp = &clamp_row<S>,
          .clamped_swiglu = &clamped_swiglu_row<S>,
          .sigmoid_mul = &sigmoid_mul_row<S>,
          .multiply = &multiply_row<S>,
          .scale = &scale_row<S>,
          .soft_cap = &soft_cap_row<S>,
          .rotate = &rotate_row<S>};
}

}  // namespace
}  // namespace attend::kernels::cpu
