// multiply_transposed in the vectors of simd.h: outer products of a few tokens with a few vectors of outputs.
// The sums stay in registers.
#pragma once

#include "attend/kernels/common/cpu/row_loop.h"
#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/gemm/cpu/linear.h"

namespace attend::kernels::cpu {
namespace {

inline const float* row_of_x(const TransposedProduct& product, int64_t token) {
  const int64_t row = product.x_rows == nullptr ? token : product.x_rows[token];
  return product.x + row * product.x_stride;
}

// Multiplies kRows tokens by kVecs whole vectors of outputs, starting at output `column`.
template <class S, int kRows, int kVecs, class W>
void multiply_tile(const TransposedProduct& product, const W* weight, int64_t token, int64_t column) {
  typename S::F32 sums[kRows][kVecs];
  for (auto& row : sums)
    for (auto& sum : row) sum = S::zero();
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) x[r] = row_of_x(product, token + r);
  for (int64_t i = 0; i < product.in_features; ++i) {
    const W* const w = weight + i * product.weight_stride + column;
    typename S::F32 vectors[kVecs];
    for (int v = 0; v < kVecs; ++v) vectors[v] = S::load(w + v * S::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const auto factor = S::set1(x[r][i]);
      for (int v = 0; v < kVecs; ++v) sums[r][v] = S::fma(factor, vectors[v], sums[r][v]);
    }
  }
  float* const out = product.out + token * product.out_stride + column;
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVecs; ++v)
      S::store_first(out + r * product.out_stride + v * S::kLanes, sums[r][v], S::kLanes);
}

// Multiplies the last outputs, fewer than a vector.
template <class S, class W>
void multiply_rest(const TransposedProduct& product, const W* weight, int64_t token, int64_t column,
                   int count) {
  auto sum = S::zero();
  const float* const x = row_of_x(product, token);
  for (int64_t i = 0; i < product.in_features; ++i)
    sum = S::fma(S::set1(x[i]), S::load_first(weight + i * product.weight_stride + column, count), sum);
  S::store_first(product.out + token * product.out_stride + column, sum, count);
}

template <class S, int kRows, class W>
void multiply_tokens(const TransposedProduct& product, const W* weight, int64_t token) {
  constexpr int kVecs = S::kTileVecs;
  int64_t column = 0;
  for (; column + kVecs * S::kLanes <= product.out_features; column += kVecs * S::kLanes)
    multiply_tile<S, kRows, kVecs>(product, weight, token, column);
  for (; column + S::kLanes <= product.out_features; column += S::kLanes)
    multiply_tile<S, kRows, 1>(product, weight, token, column);
  if (column == product.out_features) return;
  for (int r = 0; r < kRows; ++r)
    multiply_rest<S>(product, weight, token + r, column, static_cast<int>(product.out_features - column));
}

template <class S>
void multiply_transposed(const TransposedProduct& product) {
  constexpr int kRows = S::kTileRows;
  visit_weight(product.weight, product.dtype, [&](const auto* weight) {
    int64_t token = 0;
    for (; token + kRows <= product.num_tokens; token += kRows)
      multiply_tokens<S, kRows>(product, weight, token);
    for (; token < product.num_tokens; ++token) multiply_tokens<S, 1>(product, weight, token);
  });
}

template <class S>
MultiplyTransposed make_multiply_transposed() {
  return &multiply_transposed<S>;
}

}  // namespace
}  // namespace attend::kernels::cpu
