// out = x W^T for a few rows of x: the weights stream through registers, each vector of them converted to f32
// and multiplied with every row.
//
// Every product of a row with an output feature is one vector of sums over in_features in order, added up at
// the end: its bits do not depend on the tile that computes it.
#pragma once

#include "attend/kernels/common/cpu/simd.h"
#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {
namespace {

// Rows of a tile at most, and the output features of a tile of `rows` rows: what fills the registers with
// sums.
template <class S>
inline constexpr int kMaxTileRows = S::kLanes == 16 ? 6 : 4;
template <class S>
constexpr int tile_outs(int rows) {
  constexpr int kSums = S::kLanes == 16 ? 24 : 12;
  return kSums / rows > 8 ? 8 : kSums / rows;
}

// Weights that will be wanted soon: [num_outs, in_features].
template <class T>
struct Ahead {
  const T* weight;
  int64_t num_outs;
};

// x: [kRows, in_features]; weight: [kOuts, in_features], contiguous; out: [kRows, kOuts].
//
// Unrolled by pragma, because otherwise gcc moves the sums through memory before and after the loop.
template <class S, class T, int kRows, int kOuts>
void multiply_dot_tile(const float* x, int64_t x_stride, const T* weight, int64_t in_features, float* out,
                       int64_t out_stride, Ahead<T> ahead) {
  using F32 = typename S::F32;
  F32 sums[kRows][kOuts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sums[r][o] = S::zero();

  const auto add_products = [&](int64_t i, const auto& load) {
    F32 weights[kOuts];
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) weights[o] = load(weight + o * in_features + i);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32 row = load(x + r * x_stride + i);
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) sums[r][o] = S::fma(row, weights[o], sums[r][o]);
    }
  };
  int64_t i = 0;
  for (; i + S::kLanes <= in_features; i += S::kLanes) {
    for (int64_t o = 0; o < ahead.num_outs; ++o) __builtin_prefetch(ahead.weight + o * in_features + i, 0, 2);
    add_products(i, [](const auto* p) { return S::load(p); });
  }
  if (const int rest = static_cast<int>(in_features - i); rest > 0)
    add_products(i, [rest](const auto* p) { return S::load_first(p, rest); });

#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) out[r * out_stride + o] = S::reduce_add(sums[r][o]);
}

// All rows and kOuts output features from `out` on: tiles of kRows or kRows - 1 rows take turns at weights
// that stay in the nearest caches. Each fetches its share of the next strip's, so that memory is never idle.
template <class S, class T, int kRows, int kOuts>
void multiply_dot_strip(const LinearPart& part, int64_t num_tiles, int64_t out) {
  const T* const weight = static_cast<const T*>(part.weight) + out * part.in_features;
  const int64_t rest = part.num_outs - out - kOuts, next_outs = rest < kOuts ? rest : kOuts;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = tile * part.num_rows / num_tiles, end = (tile + 1) * part.num_rows / num_tiles;
    const float* const x = part.x + row * part.x_stride;
    float* const to = part.out + row * part.out_stride + out;
    const int64_t ahead = tile * next_outs / num_tiles, ahead_end = (tile + 1) * next_outs / num_tiles;
    const Ahead<T> next = {weight + (kOuts + ahead) * part.in_features, ahead_end - ahead};
    if (end - row == kRows)
      multiply_dot_tile<S, T, kRows, kOuts>(x, part.x_stride, weight, part.in_features, to, part.out_stride,
                                            next);
    else if constexpr (kRows > 1)
      multiply_dot_tile<S, T, kRows - 1, kOuts>(x, part.x_stride, weight, part.in_features, to,
                                                part.out_stride, next);
  }
}

// `height`: rows of the higher ones of num_tiles tiles, kRows or less.
template <class S, class T, int kRows>
void multiply_dot_rows(const LinearPart& part, int64_t num_tiles, int64_t height) {
  if constexpr (kRows > 0) {
    if (height < kRows) return multiply_dot_rows<S, T, kRows - 1>(part, num_tiles, height);
    constexpr int kOuts = tile_outs<S>(kRows);
    int64_t out = 0;
    for (; out + kOuts <= part.num_outs; out += kOuts)
      multiply_dot_strip<S, T, kRows, kOuts>(part, num_tiles, out);
    for (; out < part.num_outs; ++out) multiply_dot_strip<S, T, kRows, 1>(part, num_tiles, out);
  }
}

template <class S, class T>
void multiply_few_rows(const LinearPart& part) {
  // Tiles of equal heights: 9 rows are 5 and 4, not 6 and 3.
  constexpr int kMaxRows = kMaxTileRows<S>;
  const int64_t num_tiles = (part.num_rows + kMaxRows - 1) / kMaxRows;
  if (num_tiles == 0) return;
  multiply_dot_rows<S, T, kMaxRows>(part, num_tiles, (part.num_rows + num_tiles - 1) / num_tiles);
}

}  // namespace
}  // namespace attend::kernels::cpu
