// RecurrentKernels in the vectors of simd.h.
//
//   delta rule   4 rows of S at a time: 8 vectors of sums, a vector of k, q and S
//   state        a row of S is read twice and written once per token, from the L1 cache
//   bound        loads: 2.5 per fused multiply-add of the two products
#pragma once

#include <cmath>

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/recurrent/cpu/recurrent_kernels.h"

namespace attend::kernels::cpu {
namespace {

// t / (1 + e^-x), from e^-|x|, which cannot overflow.
template <class S>
typename S::F32 times_sigmoid_of(typename S::F32 t, typename S::F32 x) {
  const auto one = S::set1(1.0f);
  const auto e = exp_nonpositive<S>(S::sub(S::zero(), S::abs(x)));
  return S::div(S::mul(t, S::if_less(x, S::zero(), e, one)), S::add(one, e));
}

template <class S>
typename S::F32 silu_of(typename S::F32 x) {
  return times_sigmoid_of<S>(x, x);
}

// log(1 + e^x) = max(x, 0) + log(1 + e) with e = e^-|x|. Relative error below 3e-7.
//
// log(1 + e) = 2 artanh(s) with s = e / (2 + e), at most 1/3: 8 terms of the series (error 2e-9).
template <class S>
typename S::F32 softplus_of(typename S::F32 x) {
  const auto e = exp_nonpositive<S>(S::sub(S::zero(), S::abs(x)));
  const auto s = S::div(e, S::add(S::set1(2.0f), e)), squared = S::mul(s, s);
  auto sum = S::set1(2.0f / 15.0f);
  for (int power = 13; power >= 1; power -= 2)
    sum = S::fma(sum, squared, S::set1(2.0f / static_cast<float>(power)));
  return S::fma(sum, s, S::max(S::zero(), x));
}

template <class S>
void conv_row(const float* const* x, const float* weights, const float* bias, int64_t taps, bool silu,
              float* out, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    auto sum = bias == nullptr ? S::zero() : S::load_first(bias + i, count);
    for (int64_t j = 0; j < taps; ++j)
      sum = S::fma(S::load_first(weights + j * n + i, count), S::load_first(x[j] + i, count), sum);
    S::store_first(out + i, silu ? silu_of<S>(sum) : sum, count);
  });
}

template <class S>
float dot_rows(const float* a, const float* b, int64_t n) {
  auto sum = S::zero();
  for_each_vector<S>(n, [&](int64_t i, int count) {
    sum = S::fma(S::load_first(a + i, count), S::load_first(b + i, count), sum);
  });
  return S::reduce_add(sum);
}

template <class S>
void l2_norm_row(const float* x, float scale, float* out, int64_t n) {
  const auto factor = S::set1(scale / std::sqrt(dot_rows<S>(x, x, n) + 1e-6f));
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(out + i, S::mul(S::load_first(x + i, count), factor), count);
  });
}

template <class S>
void decay_row(const float* x, const float* bias, float rate, float lower_bound, float* out, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    const auto sum = S::add(S::load_first(x + i, count), S::load_first(bias + i, count));
    const auto log_decay = lower_bound < 0.0f
                               ? times_sigmoid_of<S>(S::set1(lower_bound), S::mul(S::set1(rate), sum))
                               : S::mul(S::set1(-rate), softplus_of<S>(sum));
    S::store_first(out + i, exp_nonpositive<S>(log_decay), count);
  });
}

// Steps kRows rows, from row `first` on, through all tokens.
template <class S, int kRows, bool kPerChannel>
void step_rows(const DeltaRows& args, int64_t first) {
  const int64_t n = args.head_dim_k;
  float* const state = args.state + first * n;
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    const float* const q = args.q + t * n;
    const float* const k = args.k + t * n;
    const float* const channel_decays = args.decay + t * n;
    typename S::F32 p[kRows], u[kRows];
    for (int row = 0; row < kRows; ++row) p[row] = u[row] = S::zero();
    for_each_vector<S>(n, [&](int64_t i, int count) {
      auto keys = S::load_first(k + i, count), queries = S::load_first(q + i, count);
      if constexpr (kPerChannel) {
        const auto decays = S::load_first(channel_decays + i, count);
        keys = S::mul(keys, decays);
        queries = S::mul(queries, decays);
      }
      for (int row = 0; row < kRows; ++row) {
        const auto elements = S::load_first(state + row * n + i, count);
        p[row] = S::fma(elements, keys, p[row]);
        u[row] = S::fma(elements, queries, u[row]);
      }
    });
    const float decay = kPerChannel ? 1.0f : args.decay[t];  // not yet in p and u
    typename S::F32 deltas[kRows];
    for (int row = 0; row < kRows; ++row) {
      const float value = args.v[t * args.v_stride + first + row];
      const float delta = args.beta[t] * (value - decay * S::reduce_add(p[row]));
      args.out[t * args.out_stride + first + row] = decay * S::reduce_add(u[row]) + args.kq[t] * delta;
      deltas[row] = S::set1(delta);
    }
    for_each_vector<S>(n, [&](int64_t i, int count) {
      const auto keys = S::load_first(k + i, count);
      const auto decays = kPerChannel ? S::load_first(channel_decays + i, count) : S::set1(decay);
      for (int row = 0; row < kRows; ++row) {
        float* const elements = state + row * n + i;
        const auto kept = S::mul(decays, S::load_first(elements, count));
        S::store_first(elements, S::fma(deltas[row], keys, kept), count);
      }
    });
  }
}

template <class S, bool kPerChannel>
void step_all_rows(const DeltaRows& args) {
  constexpr int kRows = 4;
  int64_t row = 0;
  for (; row + kRows <= args.num_rows; row += kRows) step_rows<S, kRows, kPerChannel>(args, row);
  for (; row < args.num_rows; ++row) step_rows<S, 1, kPerChannel>(args, row);
}

template <class S>
void delta_rule_rows(const DeltaRows& args) {
  return args.decays_per_channel ? step_all_rows<S, true>(args) : step_all_rows<S, false>(args);
}

template <class S, bool kSigmoid>
void gated_norm_row(float* x, const void* weight, DType dtype, float eps, const float* gate, int64_t n) {
  const float mean = dot_rows<S>(x, x, n) / static_cast<float>(n);
  const auto factor = S::set1(1.0f / std::sqrt(mean + eps));
  visit_weight(weight, dtype, [&](const auto* weights) {
    for_each_vector<S>(n, [&](int64_t i, int count) {
      const auto scaled =
          S::mul(S::mul(S::load_first(x + i, count), factor), S::load_first(weights + i, count));
      const auto gates = S::load_first(gate + i, count);
      S::store_first(x + i, kSigmoid ? times_sigmoid_of<S>(scaled, gates) : S::mul(scaled, silu_of<S>(gates)),
                     count);
    });
  });
}

// Steps kRows rows, from row `first` on, through all tokens.
template <class S, int kRows>
void scan_some_rows(const ScanRows& args, int64_t first) {
  const int64_t n = args.state_dim;
  float* const state = args.state + first * n;
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    const float* const b = args.b + t * args.bc_stride;
    const float* const c = args.c + t * args.bc_stride;
    const float* const x = args.x + t * args.x_stride + first;
    const auto decays = S::set1(args.decay[t]);
    typename S::F32 inputs[kRows], sums[kRows];
    for (int row = 0; row < kRows; ++row) {
      inputs[row] = S::set1(args.step[t] * x[row]);
      sums[row] = S::zero();
    }
    for_each_vector<S>(n, [&](int64_t i, int count) {
      const auto in = S::load_first(b + i, count), read = S::load_first(c + i, count);
      for (int row = 0; row < kRows; ++row) {
        float* const elements = state + row * n + i;
        const auto next = S::fma(inputs[row], in, S::mul(decays, S::load_first(elements, count)));
        S::store_first(elements, next, count);
        sums[row] = S::fma(next, read, sums[row]);
      }
    });
    for (int row = 0; row < kRows; ++row)
      args.out[t * args.out_stride + first + row] = S::reduce_add(sums[row]) + args.d * x[row];
  }
}

template <class S>
void scan_rows(const ScanRows& args) {
  constexpr int kRows = 4;
  int64_t row = 0;
  for (; row + kRows <= args.num_rows; row += kRows) scan_some_rows<S, kRows>(args, row);
  for (; row < args.num_rows; ++row) scan_some_rows<S, 1>(args, row);
}

template <class S>
void normalize_gated_row(float* x, const void* weight, DType dtype, float eps, const float* gate, int64_t n) {
  for_each_vector<S>(n, [&](int64_t i, int count) {
    S::store_first(x + i, S::mul(S::load_first(x + i, count), silu_of<S>(S::load_first(gate + i, count))),
                   count);
  });
  const float mean = dot_rows<S>(x, x, n) / static_cast<float>(n);
  const auto factor = S::set1(1.0f / std::sqrt(mean + eps));
  visit_weight(weight, dtype, [&](const auto* weights) {
    for_each_vector<S>(n, [&](int64_t i, int count) {
      const auto scaled = S::mul(S::load_first(x + i, count), factor);
      S::store_first(x + i, S::mul(scaled, S::load_first(weights + i, count)), count);
    });
  });
}

template <class S>
RecurrentKernels make_recurrent_kernels() {
  return {.conv = &conv_row<S>,
          .l2_norm = &l2_norm_row<S>,
          .dot = &dot_rows<S>,
          .decay = &decay_row<S>,
          .delta_rule = &delta_rule_rows<S>,
          .scan = &scan_rows<S>,
          .normalize_gated = &normalize_gated_row<S>,
          .gated_norm = &gated_norm_row<S, false>,
          .sigmoid_gated_norm = &gated_norm_row<S, true>};
}

}  // namespace
}  // namespace attend::kernels::cpu
