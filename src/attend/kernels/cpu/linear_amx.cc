// Tile products (Intel's instruction set reference, TDPBF16PS): c[m, n] += sum over k pairs of a[m, k] b[k,
// n], where a row of b holds one pair of input features of each column n.
#include <immintrin.h>

#include <cstring>

#include "attend/kernels/cpu/amx_tiles.h"
#include "attend/kernels/cpu/linear_instances.h"
#include "attend/kernels/cpu/linear_tiles.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {
namespace {

// Pairs of tiles up to which memory, not the products, sets the pace.
constexpr int64_t kFewRowPairs = 2;

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The nearest bf16 values of 32 floats; takes them off a and b. A value without a finite remainder (infinite,
// NaN) leaves none.
__m512i take_part(__m512& a, __m512& b) {
  const auto take = [](__m512& x) {
    constexpr int kNanOrInfinite = 0x01 | 0x08 | 0x10 | 0x80;
    const __m256bh part = _mm512_cvtneps_pbh(x);
    const __m512 value = _mm512_cvtpbh_ps(part);
    x = _mm512_maskz_sub_ps(_mm512_knot(_mm512_fpclass_ps_mask(value, kNanOrInfinite)), x, value);
    return (__m256i)part;
  };
  const __m256i low = take(a), high = take(b);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// kTileParts tiles of kTileSteps input features from `step` on: [16 pairs of input features][16 rows][2].
void pack_tiles(const LinearPart& part, int64_t step, char* packed) {
  const auto count = static_cast<int>(least(part.in_features - step, kTileSteps));
  __m512 pairs[kTileParts][kTileRows];
  for (int row = 0; row < kTileRows; ++row) {
    __m512 a = _mm512_setzero_ps(), b = a;
    if (row < part.num_rows) Avx512::load_block_first(part.x + row * part.x_stride + step, count, a, b);
    for (int p = 0; p < kTileParts; ++p) pairs[p][row] = _mm512_castsi512_ps(take_part(a, b));
  }
  for (int p = 0; p < kTileParts; ++p) {
    Avx512::transpose(pairs[p]);
    for (int pair = 0; pair < kTileRows; ++pair)
      _mm512_store_ps(packed + p * kTileBytes + pair * 64, pairs[p][pair]);
  }
}

void pack(const LinearPart& part, const PackedRows& packed, int64_t row_tile) {
  for (int64_t feature = 0; feature < part.in_features; feature += kTileSteps)
    pack_tiles(part, feature,
               packed.block(feature, row_tile) +
                   feature % kTileBlockFeatures / kTileSteps * kTileParts * kTileBytes);
}

constexpr int kPairOuts = 2 * kTileOuts, kPairRows = 2 * kTileRows;
constexpr int kMaxRowPairs = kTileMaxRows / kPairRows, kMaxOutPairs = kTileTaskOuts / kPairOuts;

// Sums of two tiles of rows by two tiles of output features: [rows][output features], and inside a tile
// [output feature][row].
using PairSums = float[2][2][kTileOuts * kTileRows];

// A block of weights: kPairOuts output features by kTileBlockFeatures input features, zero where the matrix
// ends. Where they lie, output features are often a power of two apart: they would push one another out of
// the caches.
using WeightBlock = BF16[kPairOuts][kTileBlockFeatures];

// Weights that will be wanted next, where they lie: num_outs output features, or none.
struct NextWeights {
  const BF16* weight;
  int64_t stride;
  int64_t num_outs;

  void fetch(int64_t step) const {
    for (int64_t o = 0; o < num_outs; ++o)
      _mm_prefetch(reinterpret_cast<const char*>(weight + o * stride + step * kTileSteps), _MM_HINT_T1);
  }
};

// sums += weights * rows over num_steps tiles of input features. The sums take turns: one takes 52 cycles,
// and one can begin every 16.
template <int kRowTiles>
void multiply_block(const WeightBlock& weights, const char* packed, int64_t num_steps,
                    const NextWeights& next, PairSums& sums) {
  load_tile<0>(sums[0][0], 64);
  load_tile<1>(sums[0][1], 64);
  if constexpr (kRowTiles == 2) {
    load_tile<2>(sums[1][0], 64);
    load_tile<3>(sums[1][1], 64);
  }
  constexpr int64_t kOutBytes = sizeof weights[0];
  for (int64_t step = 0; step < num_steps; ++step) {
    next.fetch(step);
    load_tile<4>(&weights[0][step * kTileSteps], kOutBytes);
    load_tile<5>(&weights[kTileOuts][step * kTileSteps], kOutBytes);
    for (int part = 0; part < kTileParts; ++part) {
      load_tile<6>(packed + part * kTileBytes, 64);
      multiply_tile<0, 4, 6>();
      multiply_tile<1, 5, 6>();
      if constexpr (kRowTiles == 2) {
        load_tile<7>(packed + kTileBlockBytes + part * kTileBytes, 64);
        multiply_tile<2, 4, 7>();
        multiply_tile<3, 5, 7>();
      }
    }
    packed += kTileParts * kTileBytes;
  }
  store_tile<0>(sums[0][0], 64);
  store_tile<1>(sums[0][1], 64);
  if constexpr (kRowTiles == 2) {
    store_tile<2>(sums[1][0], 64);
    store_tile<3>(sums[1][1], 64);
  }
}

void copy_block(const LinearPart& part, int64_t out, int64_t feature, WeightBlock& block) {
  const int64_t outs = least(part.num_outs - out, kPairOuts);
  const int64_t features = least(part.in_features - feature, kTileBlockFeatures);
  if (outs < kPairOuts || features < kTileBlockFeatures)
    std::memset(static_cast<void*>(block), 0, sizeof block);
  const auto* weight = static_cast<const BF16*>(part.weight) + out * part.in_features + feature;
  for (int64_t o = 0; o < outs; ++o, weight += part.in_features)
    for (int64_t i = 0; i < features; i += kTileSteps) {
      const auto count = least(features - i, kTileSteps);
      const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
      _mm512_store_si512(&block[o][i], _mm512_maskz_loadu_epi16(mask, weight + i));
    }
}

// A task's memory.
struct Scratch {
  PairSums sums[kMaxRowPairs][kMaxOutPairs];
  WeightBlock weights[kMaxOutPairs];
};
static_assert(sizeof(Scratch) <= kTileScratchBytes);

// Where a task stands.
struct Position {
  int64_t feature, out, row;
};

// Adds a block of input features to the sums of two tiles of rows by two of output features. The first rows
// wait for the weights to come from memory, so those of `next`, which comes after, are fetched meanwhile.
void add_products(const LinearPart& part, const Position& at, const Position& next, const PackedRows& packed,
                  Scratch& scratch) {
  const int64_t num_steps =
      (least(part.in_features - at.feature, kTileBlockFeatures) + kTileSteps - 1) / kTileSteps;
  WeightBlock& weights = scratch.weights[at.out / kPairOuts];
  NextWeights fetch = {};
  if (at.row == 0) {
    copy_block(part, at.out, at.feature, weights);
    fetch = {.weight = static_cast<const BF16*>(part.weight) + next.out * part.in_features + next.feature,
             .stride = part.in_features,
             .num_outs = least(part.num_outs - next.out, kPairOuts)};
  }
  const char* rows = packed.block(at.feature, at.row / kTileRows);
  PairSums& sums = scratch.sums[at.row / kPairRows][at.out / kPairOuts];
  if (part.num_rows - at.row > kTileRows)
    multiply_block<2>(weights, rows, num_steps, fetch, sums);
  else
    multiply_block<1>(weights, rows, num_steps, fetch, sums);
}

// For few rows: weights come from memory in the order in which they lie there.
void multiply_few(const LinearPart& part, const PackedRows& packed, Scratch& scratch) {
  for (int64_t out = 0; out < part.num_outs; out += kPairOuts)
    for (int64_t feature = 0; feature < part.in_features; feature += kTileBlockFeatures) {
      Position next = {feature + kTileBlockFeatures, out, 0};
      if (next.feature >= part.in_features) next = {0, out + kPairOuts, 0};
      for (int64_t row = 0; row < part.num_rows; row += kPairRows)
        add_products(part, {feature, out, row}, next, packed, scratch);
    }
}

// For more: two tiles of rows stay in the L1 cache while the weights, in the L2 cache, take turns.
void multiply_many(const LinearPart& part, const PackedRows& packed, Scratch& scratch) {
  for (int64_t feature = 0; feature < part.in_features; feature += kTileBlockFeatures)
    for (int64_t row = 0; row < part.num_rows; row += kPairRows)
      for (int64_t out = 0; out < part.num_outs; out += kPairOuts) {
        Position next = {feature, out + kPairOuts, 0};
        if (next.out >= part.num_outs) next = {feature + kTileBlockFeatures, 0, 0};
        add_products(part, {feature, out, row}, next, packed, scratch);
      }
}

// Turns a tile of sums into rows of `out`.
void write_tile(const LinearPart& part, int64_t row, int64_t out, const float* sums) {
  __m512 rows[kTileRows];
  for (int o = 0; o < kTileOuts; ++o) rows[o] = _mm512_load_ps(sums + o * kTileRows);
  Avx512::transpose(rows);
  const auto num_outs = static_cast<int>(least(part.num_outs - out, kTileOuts));
  const int64_t num_rows = least(part.num_rows - row, kTileRows);
  for (int64_t r = 0; r < num_rows; ++r)
    Avx512::store_first(part.out + (row + r) * part.out_stride + out, rows[r], num_outs);
}

void multiply(const LinearPart& part, const PackedRows& packed, void* memory) {
  Scratch& scratch = *static_cast<Scratch*>(memory);
  const int64_t num_row_pairs = (part.num_rows + kPairRows - 1) / kPairRows;
  std::memset(scratch.sums, 0, sizeof scratch.sums[0] * static_cast<size_t>(num_row_pairs));
  {
    const WholeTiles tiles;
    num_row_pairs <= kFewRowPairs ? multiply_few(part, packed, scratch)
                                  : multiply_many(part, packed, scratch);
  }
  for (int64_t out = 0; out < part.num_outs; out += kTileOuts)
    for (int64_t row = 0; row < part.num_rows; row += kTileRows)
      write_tile(part, row, out,
                 scratch.sums[row / kPairRows][out / kPairOuts][row / kTileRows % 2][out / kTileOuts % 2]);
  add_bias<Avx512>(part);
}

}  // namespace

TileLinear tile_linear_amx() { return {.pack = &pack, .multiply = &multiply}; }

}  // namespace attend::kernels::cpu
