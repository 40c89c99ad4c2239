// c = a b, or c = c_scale c + a b: the product of a few rows with a packed tile.
//
// Every element of c is one sum over the steps in order, whatever stands beside it in a tile: its bits do
// not depend on how many rows or columns are multiplied together.
#pragma once

#include <cstdint>

#include "attend/kernels/cpu/mac.h"

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
  const float* c_scale;  // [rows]; null: c is only written
  int num_steps;
};

// kRows rows and kVecs vectors of columns, all sums in registers.
template <class M, int kRows, int kVecs>
void multiply_registers(const Product<typename M::Step>& product) {
  using S = typename M::Simd;
  typename S::F32 sums[kRows][kVecs];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v)
      sums[r][v] = product.c_scale == nullptr
                       ? S::zero()
                       : S::mul(S::set1(product.c_scale[r]),
                                S::load(product.c + r * product.c_stride + v * S::kLanes));
  const auto* b = product.b;
  for (int step = 0; step < product.num_steps; ++step, b += product.b_stride) {
    typename M::StepVec columns[kVecs];
    for (int v = 0; v < kVecs; ++v) columns[v] = M::load(b + v * S::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const auto a = M::broadcast(product.a + r * product.a_stride + step);
      for (int v = 0; v < kVecs; ++v) sums[r][v] = M::mac(a, columns[v], sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v) S::store(product.c + r * product.c_stride + v * S::kLanes, sums[r][v]);
}

// Fewer rows than kRows: the same code for each count.
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

// `num_rows` rows and `num_vecs` vectors of columns.
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
