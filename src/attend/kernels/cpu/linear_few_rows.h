// out = x W^T for a few rows of x: the weights stream through registers once (or lie in the L1 cache when
// they pass again), each vector of them converted to f32 and multiplied with every row.
//
// Every product of a row with an output feature is one vector of sums over in_features in order, added up at
// the end: its bits do not depend on the tile that computes it.
#pragma once

#include "attend/kernels/cpu/linear_kernel.h"
#include "attend/kernels/cpu/simd.h"

namespace attend::kernels::cpu {
namespace {

// Sums that a tile of `rows` rows keeps in registers, for 8, 6, 4, 3.. output features at a time.
template <class S>
constexpr int tile_outs(int rows) {
  constexpr int kSums = S::kLanes == 16 ? 24 : 12;
  return kSums / rows > 8 ? 8 : kSums / rows;
}

// Rows per tile. More would leave too few output features to use a loaded vector of x for.
template <class S>
inline constexpr int kMaxTileRows = S::kLanes == 16 ? 8 : 4;

template <class S, class T, int kRows, int kOuts>
void multiply_dot_tile(const float* x, int64_t x_stride, const T* weight, int64_t in_features, float* out,
                       int64_t out_stride) {
  using F32 = typename S::F32;
  F32 sums[kRows][kOuts];
  for (auto& row : sums)
    for (F32& sum : row) sum = S::zero();
  const auto add_products = [&](int64_t i, const auto& load) {
    F32 weights[kOuts];
    for (int o = 0; o < kOuts; ++o) weights[o] = load(weight + o * in_features + i);
    for (int r = 0; r < kRows; ++r) {
      const F32 row = load(x + r * x_stride + i);
      for (int o = 0; o < kOuts; ++o) sums[r][o] = S::fma(row, weights[o], sums[r][o]);
    }
  };
  int64_t i = 0;
  for (; i + S::kLanes <= in_features; i += S::kLanes)
    add_products(i, [](const auto* p) { return S::load(p); });
  if (const int rest = static_cast<int>(in_features - i); rest > 0)
    add_products(i, [rest](const auto* p) { return S::load_first(p, rest); });
  for (int r = 0; r < kRows; ++r)
    for (int o = 0; o < kOuts; ++o) out[r * out_stride + o] = S::reduce_add(sums[r][o]);
}

// `kRows` rows, all output features.
template <class S, class T, int kRows>
void multiply_dot_rows(const LinearPart& part, int64_t row, int64_t out, int64_t num_outs) {
  constexpr int kOuts = tile_outs<S>(kRows);
  const float* const x = part.x + row * part.x_stride;
  const T* weight = static_cast<const T*>(part.weight) + out * part.in_features;
  float* to = part.out + row * part.out_stride + out;
  for (; num_outs >= kOuts; num_outs -= kOuts, weight += kOuts * part.in_features, to += kOuts)
    multiply_dot_tile<S, T, kRows, kOuts>(x, part.x_stride, weight, part.in_features, to, part.out_stride);
  for (; num_outs > 0; --num_outs, weight += part.in_features, ++to)
    multiply_dot_tile<S, T, kRows, 1>(x, part.x_stride, weight, part.in_features, to, part.out_stride);
}

template <class S, class T, int kRows>
void multiply_dot_any_rows(const LinearPart& part, int64_t row, int num_rows, int64_t out, int64_t num_outs) {
  if constexpr (kRows > 0) {
    if (num_rows == kRows) return multiply_dot_rows<S, T, kRows>(part, row, out, num_outs);
    multiply_dot_any_rows<S, T, kRows - 1>(part, row, num_rows, out, num_outs);
  }
}

template <class S, class T>
void multiply_few_rows(const LinearPart& part) {
  constexpr int kMaxRows = kMaxTileRows<S>;
  // Tiles of equal heights: 9 rows are 5 and 4, not 8 and 1.
  const int64_t num_tiles = (part.num_rows + kMaxRows - 1) / kMaxRows;
  for (int64_t out = 0; out < part.num_outs; out += kFewRowsOuts) {
    const int64_t num_outs = part.num_outs - out < kFewRowsOuts ? part.num_outs - out : kFewRowsOuts;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      const int64_t row = tile * part.num_rows / num_tiles;
      const int64_t end = (tile + 1) * part.num_rows / num_tiles;
      multiply_dot_any_rows<S, T, kMaxRows>(part, row, static_cast<int>(end - row), out, num_outs);
    }
  }
}

}  // namespace
}  // namespace attend::kernels::cpu
