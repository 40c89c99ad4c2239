// Tile products (Intel's instruction set reference, TDPBF16PS): c[m, n] += sum over k pairs of a[m, k] b[k,
// n], where a row of b holds one pair of input features of each column n. Weights are a, rows of x are b.
#include <immintrin.h>

#include <cstring>

#include "attend/kernels/cpu/amx_tiles.h"
#include "attend/kernels/cpu/linear_instances.h"
#include "attend/kernels/cpu/linear_tile_weights.h"
#include "attend/kernels/cpu/simd_avx512.h"

namespace attend::kernels::cpu {
namespace {

constexpr int kPairRows = 2 * kTileRows;
// Pairs of tiles of rows up to which memory, not the products, sets the pace.
constexpr int64_t kFewRowPairs = 2;

// kTileParts tiles of kTileSteps input features from `feature` on: [16 pairs of input features][16 rows][2].
// Which two make a pair is what the weights' reader chose.
template <class T>
void pack_tiles(const LinearPart& part, int64_t feature, char* packed) {
  const auto count = static_cast<int>(least(part.in_features - feature, kTileSteps));
  const PartsReader<float> reader;
  __m512 pairs[kTileParts][kTileRows];
  for (int row = 0; row < kTileRows; ++row) {
    Pairs parts[kTileParts] = {};
    const float* const x = part.x + row * part.x_stride + feature;
    if (row < part.num_rows) count == kTileSteps ? reader.read(x, parts) : reader.read_first(x, count, parts);
    for (int p = 0; p < kTileParts; ++p)
      pairs[p][row] = _mm512_castsi512_ps(kPairsLieApart<T> ? parts[p] : to_neighbours(parts[p]));
  }
  for (int p = 0; p < kTileParts; ++p) {
    Avx512::transpose(pairs[p]);
    for (int pair = 0; pair < kTileRows; ++pair)
      _mm512_store_ps(packed + p * kTileBytes + pair * 64, pairs[p][pair]);
  }
}

void pack(const LinearPart& part, const PackedRows& packed, int64_t row_tile, int64_t feature) {
  const int64_t end = least(part.in_features, feature + kTileBlockFeatures);
  visit_weight(part.weight, part.weight_dtype, [&]<class T>(const T*) {
    char* tiles = packed.block(feature, row_tile);
    for (int64_t i = feature; i < end; i += kTileSteps, tiles += kTileParts * kTileBytes)
      pack_tiles<T>(part, i, tiles);
  });
}

// Sums of two tiles of rows by two tiles of output features: [rows][output features], and inside a tile
// [output feature][row].
using PairSums = float[2][2][kTileOuts * kTileRows];

// sums += weights * rows over num_steps tiles of input features. Between the products, which have a unit of
// their own, vectors copy the weights that are wanted next. The sums take turns: one takes 52 cycles, and one
// can begin every 16.
template <class T, int kRowTiles>
void multiply_block(const WeightBlock<T>& weights, const char* packed, int64_t num_steps,
                    const BlockCopy<T>& next, PairSums& sums) {
  load_tile<0>(sums[0][0], 64);
  load_tile<1>(sums[0][1], 64);
  if constexpr (kRowTiles == 2) {
    load_tile<2>(sums[1][0], 64);
    load_tile<3>(sums[1][1], 64);
  }
  constexpr int64_t kOutBytes = sizeof weights.parts[0][0];
  for (int64_t step = 0; step < num_steps; ++step, packed += kTileParts * kTileBytes) {
    unrolled<kNumParts<T>>([&](auto weight_part) {
      const auto& outs = weights.parts[weight_part];
      load_tile<4>(&outs[0][step * kTileSteps], kOutBytes);
      load_tile<5>(&outs[kTileOuts][step * kTileSteps], kOutBytes);
      unrolled<kTileParts>([&](auto row_part) {
        if constexpr (weight_part + row_part <= kMaxPartOrder) {
          load_tile<6>(packed + row_part * kTileBytes, 64);
          multiply_tile<0, 4, 6>();
          multiply_tile<1, 5, 6>();
          if constexpr (kRowTiles == 2) {
            load_tile<7>(packed + kTileBlockBytes + row_part * kTileBytes, 64);
            multiply_tile<2, 4, 7>();
            multiply_tile<3, 5, 7>();
          }
        }
      });
    });
    next.copy(step * kPairOuts / num_steps, (step + 1) * kPairOuts / num_steps);
  }
  store_tile<0>(sums[0][0], 64);
  store_tile<1>(sums[0][1], 64);
  if constexpr (kRowTiles == 2) {
    store_tile<2>(sums[1][0], 64);
    store_tile<3>(sums[1][1], 64);
  }
}

// A task's memory.
template <class T>
struct Scratch {
  static constexpr int64_t kMaxOutPairs = max_tile_task_outs(std::is_same_v<T, float> ? DType::kF32
                                                             : std::is_same_v<T, F16> ? DType::kF16
                                                                                      : DType::kBF16) /
                                          kPairOuts;
  alignas(64) PairSums sums[kTileMaxRows / kPairRows][kMaxOutPairs];
  WeightBlock<T> weights[kMaxOutPairs];
};

// A task.
template <class T>
class TileTask {
 public:
  TileTask(const LinearPart& part, const PackedRows& packed, void* scratch)
      : part_(part), packed_(packed), scratch_(*static_cast<Scratch<T>*>(scratch)) {
    static_assert(sizeof(Scratch<T>) <= kTileScratchBytes);
  }

  void run() {
    const int64_t num_row_pairs = (part_.num_rows + kPairRows - 1) / kPairRows;
    std::memset(scratch_.sums, 0, sizeof scratch_.sums[0] * static_cast<size_t>(num_row_pairs));
    {
      const WholeTiles tiles;
      BlockCopy<T>(part_, 0, 0, scratch_.weights[0]).copy(0, kPairOuts);
      num_row_pairs <= kFewRowPairs || part_.num_outs <= kPairOuts ? multiply_few() : multiply_many();
    }
    for (int64_t out = 0; out < part_.num_outs; out += kTileOuts)
      for (int64_t row = 0; row < part_.num_rows; row += kTileRows) write_tile(row, out);
  }

 private:
  // For few rows: weights come from memory in the order in which they lie there.
  void multiply_few() {
    int64_t turn = 0;
    for (int64_t out = 0; out < part_.num_outs; out += kPairOuts)
      for (int64_t feature = 0; feature < part_.in_features; feature += kTileBlockFeatures, turn = 1 - turn) {
        const bool is_last = feature + kTileBlockFeatures >= part_.in_features;
        BlockCopy<T> next(part_, is_last ? out + kPairOuts : out, is_last ? 0 : feature + kTileBlockFeatures,
                          scratch_.weights[1 - turn]);
        for (int64_t row = 0; row < part_.num_rows; row += kPairRows, next = {})
          add_products(scratch_.weights[turn], feature, out, row, next);
      }
  }

  // For more: two tiles of rows stay in the L1 cache while the weights, in the L2 cache, take turns. More
  // than one block of them: the next is copied beside the one in use.
  void multiply_many() {
    const int64_t last_out = (part_.num_outs - 1) / kPairOuts * kPairOuts;
    const int64_t last_row = (part_.num_rows - 1) / kPairRows * kPairRows;
    for (int64_t feature = 0; feature < part_.in_features; feature += kTileBlockFeatures)
      for (int64_t row = 0; row < part_.num_rows; row += kPairRows)
        for (int64_t out = 0; out < part_.num_outs; out += kPairOuts) {
          BlockCopy<T> next;
          if (row == 0 && out < last_out)
            next = {part_, out + kPairOuts, feature, scratch_.weights[out / kPairOuts + 1]};
          else if (row == last_row && out == last_out)
            next = {part_, 0, feature + kTileBlockFeatures, scratch_.weights[0]};
          add_products(scratch_.weights[out / kPairOuts], feature, out, row, next);
        }
  }

  // Adds a block of input features to the sums of two tiles of rows by two of output features.
  void add_products(const WeightBlock<T>& weights, int64_t feature, int64_t out, int64_t row,
                    const BlockCopy<T>& next) {
    const int64_t num_steps =
        (least(part_.in_features - feature, kTileBlockFeatures) + kTileSteps - 1) / kTileSteps;
    const char* const rows = packed_.block(feature, row / kTileRows);
    PairSums& sums = scratch_.sums[row / kPairRows][out / kPairOuts];
    if (part_.num_rows - row > kTileRows)
      multiply_block<T, 2>(weights, rows, num_steps, next, sums);
    else
      multiply_block<T, 1>(weights, rows, num_steps, next, sums);
  }

  // Turns a tile of sums into rows of `out`.
  void write_tile(int64_t row, int64_t out) {
    const float* const sums =
        scratch_.sums[row / kPairRows][out / kPairOuts][row / kTileRows % 2][out / kTileOuts % 2];
    __m512 rows[kTileRows];
    for (int o = 0; o < kTileOuts; ++o) rows[o] = _mm512_load_ps(sums + o * kTileRows);
    Avx512::transpose(rows);
    const auto num_outs = static_cast<int>(least(part_.num_outs - out, kTileOuts));
    const int64_t num_rows = least(part_.num_rows - row, kTileRows);
    for (int64_t r = 0; r < num_rows; ++r) {
      Avx512::store_first(part_.out + (row + r) * part_.out_stride + out, rows[r], num_outs);
      const __mmask16 nan = _mm512_cmp_ps_mask(rows[r], rows[r], _CMP_UNORD_Q);
      const auto written = static_cast<__mmask16>((1u << num_outs) - 1);
      if ((nan & written) != 0) multiply_by_vectors(row + r, out, num_outs, nan & written);
    }
  }

  // What has no parts, an infinity, comes out of tiles as NaN, and may be none.
  void multiply_by_vectors(int64_t row, int64_t out, int num_outs, __mmask16 which) {
    alignas(64) float products[kTileOuts];
    linear_kernel_avx512().few_rows({.x = part_.x + row * part_.x_stride,
                                     .x_stride = part_.x_stride,
                                     .weight = static_cast<const T*>(part_.weight) + out * part_.in_features,
                                     .weight_dtype = part_.weight_dtype,
                                     .out = products,
                                     .out_stride = kTileOuts,
                                     .num_rows = 1,
                                     .num_outs = num_outs,
                                     .in_features = part_.in_features});
    _mm512_mask_storeu_ps(part_.out + row * part_.out_stride + out, which, _mm512_load_ps(products));
  }

  const LinearPart& part_;
  const PackedRows& packed_;
  Scratch<T>& scratch_;
};

void multiply(const LinearPart& part, const PackedRows& packed, void* scratch) {
  visit_weight(part.weight, part.weight_dtype,
               [&]<class T>(const T*) { TileTask<T>(part, packed, scratch).run(); });
  add_bias<Avx512>(part);
}

}  // namespace

TileLinear tile_linear_amx() { return {.pack = &pack, .multiply = &multiply}; }

}  // namespace attend::kernels::cpu
