// Products of a few rows of pairs: weights stream through registers, and each vector of them is multiplied by
// every row.
//
// Every product of a row with an output feature is one vector of sums over in_features in order, reduced at
// the end. Its bits do not depend on the tile that computes it.
#pragma once

#include "attend/kernels/common/cpu/mac_bf16.h"
#include "attend/kernels/gemm/cpu/linear_pairs.h"

namespace attend::kernels::cpu {
namespace {

using Pairs = Bf16Mac::StepVec;
// Input features per vector.
constexpr int kPairInputs = 2 * kPairsPerVector;
// Maximum rows per tile: 24 sums, a row and the weights fill the registers.
constexpr int kMaxPairTileRows = 6;
// Output features per tile. A single tile of few rows is bound by memory, and bandwidth is highest when one
// output feature is read after another. Several tiles share the weights that are loaded.
constexpr int pair_tile_outs(int rows, bool single) {
  return single && rows <= 4 ? 1 : 24 / rows > 8 ? 8 : 24 / rows;
}

// Prefetch position in the weights, kFetchAhead bytes ahead of their use: `lines` lines of 64 bytes with each
// vector of inputs.
constexpr int64_t kFetchAhead = 8192;
struct Fetch {
  const char* next;
  int lines;

  [[gnu::always_inline]] void step() {
    for (int line = 0; line < lines; ++line, next += 64) __builtin_prefetch(next, 0, 2);
  }
};

// Reduces a vector, bit for bit like a lane of Avx512::reduce_add_lanes.
inline float reduce_add512(__m512 x) {
  const __m512 halves = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
  const __m512 quads = _mm512_add_ps(halves, _mm512_permute_ps(halves, 0xb1));
  const __m512 pairs = _mm512_add_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0xb1));
  return _mm512_cvtss_f32(_mm512_add_ps(pairs, _mm512_shuffle_f32x4(pairs, pairs, 0x4e)));
}

// x: [kRows, in_features] as pairs; weights: kOuts output features; to: [kRows, kOuts]. Prefetches the lines
// of `fetch` at the same time.
template <int kRows, int kOuts>
void multiply_pair_tile(const uint32_t* x, int64_t x_stride, const BF16* weights, int64_t in_features,
                        float* to, int64_t out_stride, Fetch fetch) {
  using F32 = __m512;
  F32 sums[kRows][kOuts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) sums[r][o] = Avx512::zero();
  const auto add_products = [&](int64_t i, const auto& load) {
    Pairs vectors[kOuts];
#pragma GCC unroll 8
    for (int o = 0; o < kOuts; ++o) vectors[o] = load(weights + o * in_features + i);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Pairs row = Bf16Mac::load(x + r * x_stride + i / 2);
#pragma GCC unroll 8
      for (int o = 0; o < kOuts; ++o) sums[r][o] = Bf16Mac::mac(row, vectors[o], sums[r][o]);
    }
  };
  int64_t i = 0;
  for (; i + kPairInputs <= in_features; i += kPairInputs) {
    fetch.step();
    add_products(i, [](const BF16* p) { return Bf16Mac::load_steps(p, kPairInputs); });
  }
  if (const int rest = static_cast<int>(in_features - i); rest > 0)
    add_products(i, [rest](const BF16* p) { return Bf16Mac::load_steps(p, rest); });

  constexpr int kSums = kRows * kOuts;
  if constexpr (kSums <= 6) {
#pragma GCC unroll 8
    for (int j = 0; j < kSums; ++j)
      to[j / kOuts * out_stride + j % kOuts] = reduce_add512(sums[j / kOuts][j % kOuts]);
    return;
  }
  // Reduces 16 vectors of sums together.
#pragma GCC unroll 2
  for (int first = 0; first < kSums; first += Avx512::kLanes) {
    F32 group[Avx512::kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < Avx512::kLanes; ++j)
      group[j] = first + j < kSums ? sums[(first + j) / kOuts][(first + j) % kOuts] : Avx512::zero();
    alignas(64) float totals[Avx512::kLanes];
    Avx512::store(totals, Avx512::reduce_add_lanes(group));
#pragma GCC unroll 16
    for (int j = 0; j < Avx512::kLanes; ++j)
      if (first + j < kSums) to[(first + j) / kOuts * out_stride + (first + j) % kOuts] = totals[j];
  }
}

// Multiplies all rows by kOuts output features from `out`. Tiles of kRows or kRows - 1 rows share weights
// that stay in the L1 and L2 caches. Each tile prefetches its share of the next strip, so that memory is
// never idle.
template <int kRows, int kOuts>
void multiply_pair_strip(const LinearPart& part, const PairRows& rows, int64_t num_tiles, int64_t out) {
  const BF16* const weights = static_cast<const BF16*>(part.weight) + out * part.in_features;
  // Memory past the last output feature is the next layer's weight or unmapped; prefetching it is harmless.
  const int64_t row_bytes = part.in_features * 2, strip_bytes = kOuts * row_bytes;
  const char* const next =
      reinterpret_cast<const char*>(weights) + (strip_bytes < kFetchAhead ? kFetchAhead : strip_bytes);
  const int64_t lines = (kOuts + num_tiles - 1) / num_tiles;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t row = tile * part.num_rows / num_tiles, end = (tile + 1) * part.num_rows / num_tiles;
    const uint32_t* const x = rows.data + row * rows.stride;
    float* const to = part.out + row * part.out_stride + out;
    const Fetch fetch = {next + tile * lines * row_bytes, tile * lines < kOuts ? static_cast<int>(lines) : 0};
    if (end - row == kRows)
      multiply_pair_tile<kRows, kOuts>(x, rows.stride, weights, part.in_features, to, part.out_stride, fetch);
    else if constexpr (kRows > 1)
      multiply_pair_tile<kRows - 1, kOuts>(x, rows.stride, weights, part.in_features, to, part.out_stride,
                                           fetch);
  }
}

// `height`: rows of the taller of num_tiles tiles, at most kRows.
template <int kRows, bool kSingle>
void multiply_pair_tiles(const LinearPart& part, const PairRows& rows, int64_t num_tiles, int64_t height) {
  if constexpr (kRows > 0) {
    if (height < kRows) return multiply_pair_tiles<kRows - 1, kSingle>(part, rows, num_tiles, height);
    constexpr int kOuts = pair_tile_outs(kRows, kSingle);
    int64_t out = 0;
    for (; out + kOuts <= part.num_outs; out += kOuts)
      multiply_pair_strip<kRows, kOuts>(part, rows, num_tiles, out);
    for (; out < part.num_outs; ++out) multiply_pair_strip<kRows, 1>(part, rows, num_tiles, out);
  }
}

inline void multiply_pairs_skinny(const LinearPart& part, const PairRows& rows) {
  // Tiles have equal heights: 9 rows are 5 and 4, not 6 and 3.
  const int64_t num_tiles = ceil_div(part.num_rows, int64_t{kMaxPairTileRows});
  if (num_tiles == 0) return;
  const auto multiply = num_tiles == 1 ? &multiply_pair_tiles<kMaxPairTileRows, true>
                                       : &multiply_pair_tiles<kMaxPairTileRows, false>;
  multiply(part, rows, num_tiles, ceil_div(part.num_rows, num_tiles));
}

}  // namespace
}  // namespace attend::kernels::cpu
