// c = a b, or c = c_scale c + a b: product of a few rows with a packed tile.
//
// Every element of c is one sum over the steps in order: its bits depend neither on the number of rows or
// columns that are multiplied together nor on its position in a tile.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/mac.h"
#include "attend/kernels/common/cpu/unroll.h"

namespace attend::kernels::cpu {
namespace {

template <class Step>
struct Product {
  const Step* a;  // [rows, num_steps]
  int64_t a_stride;
  const Step* b;  // [num_steps, columns]
  int64_t b_stride;
  float* c;  // [rows, columns]
  int64_t c_stride;
  const float* c_scale;  // [rows]; null: c is overwritten
  int num_steps;
};

// Multiplies kRows rows by kVecs vectors of columns, with all sums in registers.
template <class M, int kRows, int kVecs>
void multiply_registers(const Product<typename M::Step>& product) {
  using S = typename M::Simd;
  const auto* a = product.a;
  const auto* b = product.b;
  const int64_t a_stride = product.a_stride, b_stride = product.b_stride, c_stride = product.c_stride;
  float* const c = product.c;
  const float* const c_scale = product.c_scale;

  typename S::F32 sums[kRows][kVecs];
  if (c_scale == nullptr) {
    unrolled<kRows>([&](auto r) { unrolled<kVecs>([&](auto v) { sums[r][v] = S::zero(); }); });
  } else {
    unrolled<kRows>([&](auto r) {
      const auto scale = S::set1(c_scale[r]);
      unrolled<kVecs>([&](auto v) { sums[r][v] = S::mul(scale, S::load(c + r * c_stride + v * S::kLanes)); });
    });
  }
  for (int step = 0; step < product.num_steps; ++step, ++a, b += b_stride) {
    typename M::StepVec columns[kVecs];
    unrolled<kVecs>([&](auto v) { columns[v] = M::load(b + v * S::kLanes); });
    unrolled<kRows>([&](auto r) {
      const auto element = M::broadcast(a + r * a_stride);
      unrolled<kVecs>([&](auto v) { sums[r][v] = M::mac(element, columns[v], sums[r][v]); });
    });
  }
  unrolled<kRows>([&](auto r) {
    unrolled<kVecs>([&](auto v) { S::store(c + r * c_stride + v * S::kLanes, sums[r][v]); });
  });
}

// Multiplies fewer than kRows rows: the same code for each count.
template <class M, int kRows, int kVecs>
void multiply_last_rows(const Product<typename M::Step>& product, int num_rows) {
  if constexpr (kRows > 0) {
    if (num_rows == kRows) return multiply_registers<M, kRows, kVecs>(product);
    multiply_last_rows<M, kRows - 1, kVecs>(product, num_rows);
  }
}

template <class M, int kVecs>
void multiply_rows(Product<typename M::Step> product, int num_rows) {
  constexpr int kRows = M::Simd::kTileRows;
  for (; num_rows >= kRows; num_rows -= kRows) {
    multiply_registers<M, kRows, kVecs>(product);
    product.a += kRows * product.a_stride;
    product.c += kRows * product.c_stride;
    if (product.c_scale != nullptr) product.c_scale += kRows;
  }
  multiply_last_rows<M, kRows - 1, kVecs>(product, num_rows);
}

template <class M, int kVecs>
void multiply_last_columns(const Product<typename M::Step>& product, int num_rows, int num_vecs) {
  if constexpr (kVecs > 0) {
    if (num_vecs == kVecs) return multiply_rows<M, kVecs>(product, num_rows);
    multiply_last_columns<M, kVecs - 1>(product, num_rows, num_vecs);
  }
}

// Multiplies `num_rows` rows by `num_vecs` vectors of columns.
template <class M>
void multiply(Product<typename M::Step> product, int num_rows, int num_vecs) {
  constexpr int kVecs = M::Simd::kTileVecs;
  for (; num_vecs >= kVecs; num_vecs -= kVecs) {
    multiply_rows<M, kVecs>(product, num_rows);
    product.b += kVecs * M::Simd::kLanes;
    product.c += kVecs * M::Simd::kLanes;
  }
  multiply_last_columns<M, kVecs - 1>(product, num_rows, num_vecs);
}

}  // namespace
}  // namespace attend::kernels::cpu
