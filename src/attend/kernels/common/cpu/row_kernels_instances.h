// RowKernels written in the vectors of simd.h.
#pragma once

#include "attend/kernels/common/cpu/row_kernels.h"
#include "attend/kernels/common/cpu/simd.h"

namespace attend::kernels::cpu {
namespace {

// Calls fn(first, count) for each vector of a row of n elements; only the last may be partial.
template <class S, class Fn>
void for_each_vector(int n, const Fn& fn) {
  int i = 0;
  for (; i + S::kLanes <= n; i += S::kLanes) fn(i, S::kLanes);
  if (i < n) fn(i, n - i);
}

template <class S>
void blend_row(float* sum, float sum_weight, const void* row, DType dtype, float row_weight, float factor,
               int n) {
  const auto ws = S::set1(sum_weight), wr = S::set1(row_weight), f = S::set1(factor);
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
    const T* const elements = static_cast<const T*>(row);
    for_each_vector<S>(n, [&](int i, int count) {
      const auto part = S::mul(S::load_first(elements + i, count), wr);
      S::store_first(sum + i, S::mul(S::fma(S::load_first(sum + i, count), ws, part), f), count);
    });
  });
}

template <class S>
void write_row(const float* row, float factor, void* to, DType dtype, int n) {
  const auto f = S::set1(factor);
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
    T* const elements = static_cast<T*>(to);
    for_each_vector<S>(n, [&](int i, int count) {
      store_as<S>(elements + i, S::mul(S::load_first(row + i, count), f), count);
    });
  });
}

template <class S>
void store_row(const void* from, DType from_dtype, void* to, DType to_dtype, float scale, int n) {
  const auto divisor = S::set1(scale);
  visit_float_dtype(from_dtype, [&]<class From>(TypeTag<From>) {
    visit_float_dtype(to_dtype, [&]<class To>(TypeTag<To>) {
      const From* const source = static_cast<const From*>(from);
      To* const target = static_cast<To*>(to);
      for_each_vector<S>(n, [&](int i, int count) {
        store_as<S>(target + i, S::div(S::load_first(source + i, count), divisor), count);
      });
    });
  });
}

template <class S>
RowKernels make_row_kernels() {
  return {.blend = &blend_row<S>, .write = &write_row<S>, .store = &store_row<S>};
}

}  // namespace
}  // namespace attend::kernels::cpu
