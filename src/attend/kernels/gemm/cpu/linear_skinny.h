// out = x W^T for a few rows of x: the weights stream through registers, each vector of them converted to f32
// and multiplied with every row.
//
// Every product of a row with an output feature is one vector of sums over in_features in order, added up at
// the end: its bits do not depend on the tile that computes it.
#pragma once

#include "attend/base/math.h"
#include "attend/kernels/gemm/cpu/weight_rows.h"

namespace attend::kernels::cpu {
namespace {

// Rows of a tile at most, and the output features of a tile of `rows` rows: what fills the registers with
// sums. But a single tile of few rows waits for memory, which gives most to who reads one output feature
// after another, where elements need little work.
template <class S>
inline constexpr int kMaxTileRows = S::kLanes == 16 ? 6 : 4;
template <class S, class Rows>
constexpr int tile_outs(int rows, bool single) {
  constexpr int kSums = S::kLanes == 16 ? 24 : 12;
  // So many that sums one after another are no slower than memory.
  constexpr int kFewest = S::kLanes == 16 ? 1 : 2;
  if (Rows::kPlain && single && rows <= 2) return kFewest;
  return kSums / rows > 8 ? 8 : kSums / rows;
}
// Bytes that weights are asked for ahead of their use, at least.
constexpr int64_t kBytesAhead = 8192;

// Output features whose weights will be wanted soon.
struct Ahead {
  int64_t out, num_outs;
};

// x: [kRows, in_features]; weights: kOuts output features from `out` on; to: [kRows, kOuts].
//
// Unrolled by pragma, because otherwise gcc moves the sums through memory before and after the loop.
template <class S, class Rows, int kRows, int kOuts>
void multiply_dot_tile(const float* x, int64_t x_stride, const Rows& weights, int64_t out, float* to,
                       int64_t out_stride, Ahead ahead) {
  using F32 = typename S::F32;
  F32 sums[kRows][kOuts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sums[r][o] = S::zero();

  typename Rows::Group groups[kOuts];
  // The products of a vector of inputs, which `load` and `load_x` read.
  const auto add_products = [&](const auto& load, const auto& load_x) {
    F32 vectors[kOuts];
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) vectors[o] = load(out + o, groups[o]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32 row = load_x(x + r * x_stride);
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) sums[r][o] = S::fma(row, vectors[o], sums[r][o]);
    }
  };
  const auto add_vector = [&](int64_t i) {
    add_products([&](int64_t o, const auto& shared) { return weights.load(o, i, shared); },
                 [&](const float* p) { return weights.load_x(p, i); });
  };
  const auto fetch = [&](int64_t i) {
    for (int64_t o = 0; o < ahead.num_outs; ++o) weights.prefetch(ahead.out + o, i);
  };
  typename Rows::Scales scales[kOuts];
#pragma GCC unroll 8
  for (int o = 0; o < kOuts; ++o) scales[o] = weights.scales(out + o);
  // A group ends where a vector does, or with the last one.
  int64_t group = 0, group_end = 0;
  const auto begin_group = [&](int64_t i) {
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) groups[o] = weights.group(scales[o], group);
    group_end = weights.group_end(i);
    ++group;
  };
  begin_group(0);
  const auto enter_group = [&](int64_t i) {
    if (Rows::kGrouped && i >= group_end) begin_group(i);
  };

  constexpr int64_t kLine = Rows::kLineVectors * S::kLanes;
  const int64_t in_features = weights.in_features();
  int64_t i = 0;
  for (; i + kLine <= in_features; i += kLine) {
    fetch(i);
#pragma GCC unroll 8
    for (int v = 0; v < Rows::kLineVectors; ++v) {
      enter_group(i + v * S::kLanes);
      add_vector(i + v * S::kLanes);
    }
  }
  if (kLine > S::kLanes && i < in_features) fetch(i);
  for (; i + S::kLanes <= in_features; i += S::kLanes) {
    enter_group(i);
    add_vector(i);
  }
  if (const int rest = static_cast<int>(in_features - i); rest > 0) {
    enter_group(i);
    add_products([&](int64_t o, const auto& shared) { return weights.load_first(o, i, rest, shared); },
                 [&](const float* p) { return S::load_first(p + i, rest); });
  }

#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) to[r * out_stride + o] = S::reduce_add(sums[r][o]);
}

// All rows and kOuts output features from `out` on: tiles of kRows or kRows - 1 rows take turns at weights
// that stay in the nearest caches. Each fetches its share of the next strip's, so that memory is never idle.
template <class S, class Rows, int kRows, int kOuts>
void multiply_dot_strip(const LinearPart& part, const Rows& weights, int64_t num_tiles, int64_t out) {
  const int64_t distance = kOuts > 2 ? kOuts : ceil_div(kBytesAhead, weight_row_bytes(part));
  const int64_t rest = part.num_outs - out - distance;
  const int64_t next_outs = rest < 0 ? 0 : rest < kOuts ? rest : kOuts;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = tile * part.num_rows / num_tiles, end = (tile + 1) * part.num_rows / num_tiles;
    const float* const x = part.x + row * part.x_stride;
    float* const to = part.out + row * part.out_stride + out;
    const int64_t ahead = tile * next_outs / num_tiles, ahead_end = (tile + 1) * next_outs / num_tiles;
    const Ahead next = {out + distance + ahead, ahead_end - ahead};
    if (end - row == kRows)
      multiply_dot_tile<S, Rows, kRows, kOuts>(x, part.x_stride, weights, out, to, part.out_stride, next);
    else if constexpr (kRows > 1)
      multiply_dot_tile<S, Rows, kRows - 1, kOuts>(x, part.x_stride, weights, out, to, part.out_stride, next);
  }
}

// `height`: rows of the higher ones of num_tiles tiles, kRows or less.
template <class S, class Rows, int kRows, bool kSingle>
void multiply_dot_rows(const LinearPart& part, const Rows& weights, int64_t num_tiles, int64_t height) {
  if constexpr (kRows > 0) {
    if (height < kRows)
      return multiply_dot_rows<S, Rows, kRows - 1, kSingle>(part, weights, num_tiles, height);
    constexpr int kOuts = tile_outs<S, Rows>(kRows, kSingle);
    int64_t out = 0;
    for (; out + kOuts <= part.num_outs; out += kOuts)
      multiply_dot_strip<S, Rows, kRows, kOuts>(part, weights, num_tiles, out);
    for (; out < part.num_outs; ++out) multiply_dot_strip<S, Rows, kRows, 1>(part, weights, num_tiles, out);
  }
}

template <class S, class Rows>
void multiply_skinny(const LinearPart& part) {
  // Tiles of equal heights: 9 rows are 5 and 4, not 6 and 3.
  constexpr int kMaxRows = kMaxTileRows<S>;
  const int64_t num_tiles = (part.num_rows + kMaxRows - 1) / kMaxRows;
  if (num_tiles == 0) return;
  const auto multiply = num_tiles == 1 ? &multiply_dot_rows<S, Rows, kMaxRows, true>
                                       : &multiply_dot_rows<S, Rows, kMaxRows, false>;
  multiply(part, Rows(part), num_tiles, ceil_div(part.num_rows, num_tiles));
}

}  // namespace
}  // namespace attend::kernels::cpu
