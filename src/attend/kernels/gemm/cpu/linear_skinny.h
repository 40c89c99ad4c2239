// out = x W^T for a few rows of x: weights stream through registers. Each vector of them is converted to f32
// and multiplied by every row.
//
// Every product of a row with an output feature is one vector of sums over in_features in order, reduced at
// the end. Its bits do not depend on the tile that computes it.
#pragma once

#include "attend/base/math.h"
#include "attend/kernels/gemm/cpu/weight_rows.h"

namespace attend::kernels::cpu {
namespace {

// True if a single tile reads output features that are far apart, as one memory stream per output feature:
// the hardware prefetcher runs ahead of each stream. If it runs far enough ahead, a single stream is as fast.
template <class S>
inline constexpr bool kPrefetchesFarOuts = S::kLanes == 8;
// Maximum rows per tile, and output features of a tile of `rows` rows: the sums fill the registers. A single
// tile of few rows is bound by memory; with plain weights it reads few streams at a time, which has the
// highest bandwidth.
template <class S>
inline constexpr int kMaxTileRows = S::kLanes == 16 ? 6 : 4;
template <class S, class Rows>
constexpr int tile_outs(int rows, bool single) {
  constexpr int kSums = S::kLanes == 16 ? 24 : 12;
  constexpr int kMinRows = kPrefetchesFarOuts<S> ? 4 : S::kLanes == 16 ? 1 : 2;
  if (Rows::kPlain && single && rows <= 2) return kMinRows;
  return kSums / rows > 8 ? 8 : kSums / rows;
}
// Minimum prefetch distance in bytes: for a single stream, and for each of several streams.
constexpr int64_t kBytesAhead = 8192, kFarBytesAhead = 512;

// Output features with a stride of `step`.
struct Outs {
  int64_t first = 0, step = 1;

  int64_t operator[](int64_t i) const { return first + i * step; }
};
// Output features with weights to prefetch. If `inputs` is not 0, prefetches the tile's own output features
// this many inputs ahead.
struct PrefetchOuts {
  Outs outs = {};
  int64_t num_outs = 0;
  int64_t inputs = 0;
};

// multiply_dot_tile() for weights that are decoded to memory in runs.
template <class S, class Rows, int kRows, int kOuts>
void multiply_run_tile(const float* x, int64_t x_stride, const Rows& weights, Outs outs, float* to,
                       int64_t out_stride) {
  using F32 = typename S::F32;
  F32 sums[kRows][kOuts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sums[r][o] = S::zero();
  alignas(64) float runs[kOuts][kRunElements];
  for (int64_t i = 0; i < weights.in_features(); i += kRunElements) {
    const int64_t rest = weights.in_features() - i;
    const int count = rest < kRunElements ? static_cast<int>(rest) : kRunElements;
    for (int o = 0; o < kOuts; ++o) weights.decode(outs[o], i, count, runs[o]);
    for (int j = 0; j < count; j += S::kLanes) {
      F32 vectors[kOuts];
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) vectors[o] = S::load(runs[o] + j);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32 row = S::load(x + r * x_stride + i + j);
#pragma GCC unroll 8
        for (int o = 0; o < kOuts; ++o) sums[r][o] = S::fma(row, vectors[o], sums[r][o]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) to[r * out_stride + outs[o]] = S::reduce_add(sums[r][o]);
}

// x: [kRows, in_features]; weights: kOuts output features; to: [kRows, all output features].
//
// The loops are unrolled by pragma; otherwise gcc moves the sums through memory before and after the loop.
template <class S, class Rows, int kRows, int kOuts>
void multiply_dot_tile(const float* x, int64_t x_stride, const Rows& weights, Outs outs, float* to,
                       int64_t out_stride, [[maybe_unused]] PrefetchOuts ahead) {
  if constexpr (kDecodesRuns<Rows>) {
    multiply_run_tile<S, Rows, kRows, kOuts>(x, x_stride, weights, outs, to, out_stride);
  } else {
    using F32 = typename S::F32;
    F32 sums[kRows][kOuts];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) sums[r][o] = S::zero();

    typename Rows::Group groups[kOuts];
    // Adds the products of a vector of inputs, read with `load` and `load_x`.
    const auto add_products = [&](const auto& load, const auto& load_x) {
      F32 vectors[kOuts];
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) vectors[o] = load(o);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32 row = load_x(x + r * x_stride);
#pragma GCC unroll 8
        for (int o = 0; o < kOuts; ++o) sums[r][o] = S::fma(row, vectors[o], sums[r][o]);
      }
    };
    const auto add_vector = [&](int64_t i) {
      add_products([&](int o) { return weights.load(outs[o], i, groups[o]); },
                   [&](const float* p) { return weights.load_x(p, i); });
    };
    const auto fetch = [&](int64_t i) {
      if (ahead.inputs == 0) {
        for (int64_t o = 0; o < ahead.num_outs; ++o) weights.prefetch(ahead.outs[o], i);
        return;
      }
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) weights.prefetch(outs[o], i + ahead.inputs);
    };
    typename Rows::Scales scales[kOuts];
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) scales[o] = weights.scales(outs[o]);
    // A group ends at the end of a vector or of the row.
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

    // Adds a block of vectors that are decoded together, or a single vector. Groups end at block boundaries.
    const auto add_block = [&](int64_t i) {
      enter_group(i);
      if constexpr (Rows::kBlockVectors == 1) {
        add_vector(i);
      } else {
        typename Rows::Values::Block blocks[kOuts];
#pragma GCC unroll 8
        for (int o = 0; o < kOuts; ++o) weights.load_block(outs[o], i, groups[o], blocks[o]);
#pragma GCC unroll 8
        for (int v = 0; v < Rows::kBlockVectors; ++v)
          add_products([&](int o) { return weights.load_vector(blocks[o], v, groups[o]); },
                       [&](const float* p) { return weights.load_x(p, i + v * S::kLanes); });
      }
    };

    constexpr int64_t kLine = Rows::kLineVectors * S::kLanes;
    const int64_t in_features = weights.in_features();
    int64_t i = 0;
    for (; i + kLine <= in_features; i += kLine) {
      fetch(i);
#pragma GCC unroll 8
      for (int v = 0; v < Rows::kLineVectors; v += Rows::kBlockVectors) add_block(i + v * S::kLanes);
    }
    if (kLine > S::kLanes && i < in_features) fetch(i);
    for (; i + S::kLanes <= in_features; i += S::kLanes) {
      enter_group(i);
      add_vector(i);
    }
    if (const int rest = static_cast<int>(in_features - i); rest > 0) {
      enter_group(i);
      add_products([&](int o) { return weights.load_first(outs[o], i, rest, groups[o]); },
                   [&](const float* p) { return S::load_first(p + i, rest); });
    }

#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) to[r * out_stride + outs[o]] = S::reduce_add(sums[r][o]);
  }
}

// Weights that the tiles of a strip prefetch while they compute `outs`, so that memory is never idle: the
// next strip, or the next inputs of each stream.
template <int kOuts, bool kPrefetchesFar>
PrefetchOuts next_outs(const LinearPart& part, Outs outs) {
  const int64_t row_bytes = weight_row_bytes(part);
  if (kPrefetchesFar && kOuts > 1) return {.inputs = kFarBytesAhead * part.in_features / row_bytes};
  const int64_t distance = kOuts > 2 ? kOuts : ceil_div(kBytesAhead, row_bytes);
  const int64_t rest = part.num_outs - outs.first - distance;
  return {.outs = {outs.first + distance, 1}, .num_outs = rest < 0 ? 0 : rest < kOuts ? rest : kOuts};
}

// Multiplies all rows by kOuts output features. Tiles of kRows or kRows - 1 rows share weights that stay in
// the L1 and L2 caches. Each tile prefetches its share of the next weights.
template <class S, class Rows, int kRows, int kOuts, bool kPrefetchesFar>
void multiply_dot_strip(const LinearPart& part, const Rows& weights, int64_t num_tiles, Outs outs) {
  const PrefetchOuts all = next_outs<kOuts, kPrefetchesFar>(part, outs);
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = tile * part.num_rows / num_tiles, end = (tile + 1) * part.num_rows / num_tiles;
    const float* const x = part.x + row * part.x_stride;
    float* const to = part.out + row * part.out_stride;
    const int64_t begin = tile * all.num_outs / num_tiles, next = (tile + 1) * all.num_outs / num_tiles;
    const PrefetchOuts ahead = {{all.outs[begin], all.outs.step}, next - begin, all.inputs};
    if (end - row == kRows)
      multiply_dot_tile<S, Rows, kRows, kOuts>(x, part.x_stride, weights, outs, to, part.out_stride, ahead);
    else if constexpr (kRows > 1)
      multiply_dot_tile<S, Rows, kRows - 1, kOuts>(x, part.x_stride, weights, outs, to, part.out_stride,
                                                   ahead);
  }
}

// `height`: rows of the taller of num_tiles tiles, at most kRows.
template <class S, class Rows, int kRows, bool kSingle>
void multiply_dot_rows(const LinearPart& part, const Rows& weights, int64_t num_tiles, int64_t height) {
  if constexpr (kRows > 0) {
    if (height < kRows)
      return multiply_dot_rows<S, Rows, kRows - 1, kSingle>(part, weights, num_tiles, height);
    constexpr int kOuts = tile_outs<S, Rows>(kRows, kSingle);
    constexpr bool kPrefetchesFar = kPrefetchesFarOuts<S> && kSingle;
    const int64_t num_strips = part.num_outs / kOuts;
    for (int64_t strip = 0; strip < num_strips; ++strip) {
      const Outs outs = kPrefetchesFar ? Outs{strip, num_strips} : Outs{strip * kOuts, 1};
      multiply_dot_strip<S, Rows, kRows, kOuts, kPrefetchesFar>(part, weights, num_tiles, outs);
    }
    for (int64_t out = num_strips * kOuts; out < part.num_outs; ++out)
      multiply_dot_strip<S, Rows, kRows, 1, kPrefetchesFar>(part, weights, num_tiles, {out, 1});
  }
}

template <class S, class Rows>
void multiply_skinny(const LinearPart& part) {
  // Tiles have equal heights: 9 rows are 5 and 4, not 6 and 3.
  constexpr int kMaxRows = kMaxTileRows<S>;
  const int64_t num_tiles = (part.num_rows + kMaxRows - 1) / kMaxRows;
  if (num_tiles == 0) return;
  const auto multiply = num_tiles == 1 ? &multiply_dot_rows<S, Rows, kMaxRows, true>
                                       : &multiply_dot_rows<S, Rows, kMaxRows, false>;
  multiply(part, Rows(part), num_tiles, ceil_div(part.num_rows, num_tiles));
}

}  // namespace
}  // namespace attend::kernels::cpu
