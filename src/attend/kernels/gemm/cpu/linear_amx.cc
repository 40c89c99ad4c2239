// AMX tile products (Intel's instruction set reference, TDPBF16PS): c[m, n] += sum over pairs k of a[m, k] *
// b[k, n]. A row of b holds one pair of input features for each column n. Operand a holds weights, operand b
// holds rows of x.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "attend/kernels/common/cpu/amx_tiles.h"
#include "attend/kernels/common/cpu/simd_avx512.h"
#include "attend/kernels/gemm/cpu/linear_instances.h"
#include "attend/kernels/gemm/cpu/linear_tile_weights.h"
#include "attend/kernels/gemm/cpu/quantized_values_avx512.h"

namespace attend::kernels::cpu {
namespace {

constexpr int kPairRows = 2 * kLinearTileRows;
// Up to this number of rows, converting weights again for every kPairRows rows is faster than keeping them.
constexpr int64_t kStreamRows = 64;
// Input features per pass over the output features if rows are few, so that 16 rows stay in the L2 cache.
constexpr int64_t kStreamFeatures = 4096;

// Packs kTileParts tiles of kTileSteps input features from `feature`: [16 pairs of input features][16
// rows][2]. The weight reader defines which two input features form a pair.
template <class T>
void pack_tiles(const LinearPart& part, int64_t feature, char* packed) {
  const auto count = static_cast<int>(least(part.in_features - feature, kTileSteps));
  const Bf16PartsReader<float> reader;
  __m512 pairs[kTileParts][kLinearTileRows];
  for (int row = 0; row < kLinearTileRows; ++row) {
    Pairs parts[kTileParts] = {};
    const float* const x = part.x + row * part.x_stride + feature;
    if (row < part.num_rows) count == kTileSteps ? reader.read(x, parts) : reader.read_first(x, count, parts);
    for (int p = 0; p < kTileParts; ++p)
      pairs[p][row] = _mm512_castsi512_ps(kPairsAreStrided<T> ? parts[p] : to_adjacent(parts[p]));
  }
  for (int p = 0; p < kTileParts; ++p) {
    Avx512::transpose(pairs[p]);
    for (int pair = 0; pair < kLinearTileRows; ++pair)
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

// Accumulators of a tile: [output feature][row].
using Sums = float[kTileOuts * kLinearTileRows];

// Tiles 0 to 3 hold the accumulators of kRowTiles tiles of rows by kOutTiles tiles of output features, in
// row-major order. Consecutive instructions use different tiles: one takes 52 cycles, and a new one can start
// every 16.
template <int kRowTiles, int kOutTiles, class Fn>
[[gnu::always_inline]] inline void for_each_sum(const Fn& fn) {
  unrolled<kRowTiles>([&](auto row) {
    unrolled<kOutTiles>([&](auto out) { fn(Index<row * kOutTiles + out>{}, row, out); });
  });
}

template <class T, int kRowTiles, int kOutTiles>
[[gnu::always_inline]] inline void multiply_step(const WeightTiles<T>& weights, int64_t out_tile,
                                                 int64_t step, const char* rows) {
  const char* const outs = weights.tile(out_tile, step);
  const int64_t out_bytes = weights.num_steps * WeightTiles<T>::kStepBytes;
  if constexpr (kRowTiles == 1) {
    // The parts of the rows fill three tiles; the parts of the weights are loaded into the fourth, one after
    // another.
    unrolled<kTileParts>([&](auto part) { load_tile<4 + part>(rows + part * kTileBytes, 64); });
    unrolled<kNumBf16Parts<T>>([&](auto weight_part) {
      unrolled<kOutTiles>([&](auto out) {
        load_tile<7>(outs + out * out_bytes + weight_part * kTileBytes, 64);
        unrolled<kTileParts>([&](auto part) {
          if constexpr (weight_part + part <= kMaxPartOrder) multiply_tile<out, 7, 4 + part>();
        });
      });
    });
  } else {
    unrolled<kNumBf16Parts<T>>([&](auto weight_part) {
      unrolled<2>(
          [&](auto out) { load_tile<4 + out>(outs + out * out_bytes + weight_part * kTileBytes, 64); });
      unrolled<kTileParts>([&](auto part) {
        if constexpr (weight_part + part <= kMaxPartOrder)
          unrolled<2>([&](auto row) {
            load_tile<6 + row>(rows + row * kTileBlockBytes + part * kTileBytes, 64);
            unrolled<2>([&](auto out) { multiply_tile<row * 2 + out, 4 + out, 6 + row>(); });
          });
      });
    });
  }
}

// Multiplies some output features of up to kTileMaxRows rows.
template <class T>
class TileTask {
 public:
  TileTask(const LinearPart& part, const PackedRows& packed, void* scratch)
      : part_(part), packed_(packed), weights_(part), scratch_(*static_cast<Scratch*>(scratch)) {
    static_assert(sizeof(Scratch) <= kTileScratchBytes);
  }

  void run() {
    const int64_t num_row_tiles = (part_.num_rows + kLinearTileRows - 1) / kLinearTileRows;
    std::memset(scratch_.sums, 0, sizeof scratch_.sums[0] * static_cast<size_t>(num_row_tiles));
    {
      const FullAmxTiles tiles;
      part_.num_rows <= kStreamRows ? multiply_stream() : multiply_blocks();
    }
    for (int64_t out = 0; out < part_.num_outs; out += kTileOuts)
      for (int64_t row = 0; row < part_.num_rows; row += kLinearTileRows) write_tile(row, out);
  }

 private:
  // Prefetch distance in input features.
  static constexpr int64_t kAheadFeatures = 4096 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kBlockSteps = kTileBlockFeatures / kTileSteps;
  static constexpr int64_t kGroupBytes = kGroupOutTiles * kBlockSteps * WeightTiles<T>::kStepBytes;
  static constexpr int64_t kMaxOutTiles = max_tile_task_outs(std::is_same_v<T, float> ? DType::kF32
                                                             : std::is_same_v<T, F16> ? DType::kF16
                                                                                      : DType::kBF16) /
                                          kTileOuts;
  struct alignas(64) Scratch {
    Sums sums[kTileMaxRows / kLinearTileRows][kMaxOutTiles];
    char weights[kMaxOutTiles / kGroupOutTiles][kGroupBytes];  // blocks of weights, one per group of output
                                                               // features
  };

  // Used for few rows: streams the weights, a few output features at a time. Fewer streams suit the hardware
  // prefetcher, and with a single tile of rows the loop is bound by memory.
  void multiply_stream() {
    constexpr int64_t kOuts = 2 * kTileOuts;
    for (int64_t feature = 0; feature < part_.in_features; feature += kStreamFeatures)
      for (int64_t out = 0; out < part_.num_outs; out += kOuts)
        for (int64_t row = 0; row < part_.num_rows; row += kPairRows) {
          if (part_.num_rows - row > kLinearTileRows) {
            stream<2, 2>(feature, out, row);
          } else {
            stream<1, 1>(feature, out, row);
            stream<1, 1>(feature, out + kTileOuts, row);
          }
        }
  }

  // Prefetches weights into the L2 cache well ahead, and into the L1 cache one step ahead.
  template <int kRowTiles, int kOutTiles>
  void stream(int64_t feature, int64_t out, int64_t row) {
    constexpr int64_t kOuts = kOutTiles * kTileOuts;
    if (out >= part_.num_outs) return;
    const int64_t begin = feature, end = least(feature + kStreamFeatures, part_.in_features);
    const auto for_each = [&](const auto& fn) {
      for_each_sum<kRowTiles, kOutTiles>([&](auto sum, auto row_tile, auto out_tile) {
        fn(sum, scratch_.sums[row / kLinearTileRows + row_tile][out / kTileOuts + out_tile]);
      });
    };
    for_each([](auto sum, Sums& values) { load_tile<sum>(values, 64); });
    WeightTiles<T> now = {scratch_.weights[0], 1}, next = {scratch_.weights[1], 1};
    weights_.read_step(out, kOuts, begin, now);
    for (; feature < end; feature += kTileSteps) {
      multiply_step<T, kRowTiles, kOutTiles>(now, 0, 0, packed_.tile(feature, row / kLinearTileRows));
      if (feature + kTileSteps < end) weights_.read_step(out, kOuts, feature + kTileSteps, next);
      std::swap(now, next);
      const int64_t ahead = feature + kAheadFeatures;
      if (ahead < end)
        weights_.fetch_step(out, kOuts, ahead);
      else if (begin + ahead - end < end)
        weights_.fetch_step(out + kOuts, kOuts, begin + ahead - end);
    }
    for_each([](auto sum, Sums& values) { store_tile<sum>(values, 64); });
  }

  // Used for many rows: two tiles of rows stay in the L1 cache while the loop iterates over the weights of a
  // block of input features in the L2 cache.
  void multiply_blocks() {
    const auto get_tiles = [&](int64_t out) {
      return WeightTiles<T>{scratch_.weights[out / kGroupOuts], kBlockSteps};
    };
    for (int64_t feature = 0; feature < part_.in_features; feature += kTileBlockFeatures)
      for (int64_t row = 0; row < part_.num_rows; row += kPairRows)
        for (int64_t out = 0; out < part_.num_outs; out += kGroupOuts) {
          if (row == 0)
            for (int64_t o = 0; o < kGroupOuts; ++o) weights_.read_run(out, o, feature, get_tiles(out));
          if (part_.num_rows - row <= kLinearTileRows)
            add_block<1, 4>(get_tiles(out), 0, feature, out, row);
          else
            for (int64_t o = 0; o < least(kGroupOuts, part_.num_outs - out); o += 2 * kTileOuts)
              add_block<2, 2>(get_tiles(out), o / kTileOuts, feature, out + o, row);
        }
  }

  template <int kRowTiles, int kOutTiles>
  void add_block(const WeightTiles<T>& weights, int64_t out_tile, int64_t feature, int64_t out, int64_t row) {
    const auto tile_sums = [&](int64_t row_tile, int64_t o) -> Sums& {
      return scratch_.sums[row / kLinearTileRows + row_tile][out / kTileOuts + o];
    };
    for_each_sum<kRowTiles, kOutTiles>(
        [&](auto sum, auto row_tile, auto o) { load_tile<sum>(tile_sums(row_tile, o), 64); });
    for (int64_t i = feature; i < least(feature + kTileBlockFeatures, part_.in_features); i += kTileSteps)
      multiply_step<T, kRowTiles, kOutTiles>(weights, out_tile, (i - feature) / kTileSteps,
                                             packed_.tile(i, row / kLinearTileRows));
    for_each_sum<kRowTiles, kOutTiles>(
        [&](auto sum, auto row_tile, auto o) { store_tile<sum>(tile_sums(row_tile, o), 64); });
  }

  // Transposes a tile of sums into rows of `out`.
  void write_tile(int64_t row, int64_t out) {
    const Sums& sums = scratch_.sums[row / kLinearTileRows][out / kTileOuts];
    __m512 rows[kLinearTileRows];
    for (int o = 0; o < kTileOuts; ++o) rows[o] = _mm512_load_ps(&sums[o * kLinearTileRows]);
    Avx512::transpose(rows);
    const auto num_outs = static_cast<int>(least(part_.num_outs - out, kTileOuts));
    const int64_t num_rows = least(part_.num_rows - row, kLinearTileRows);
    for (int64_t r = 0; r < num_rows; ++r) {
      Avx512::store_first(part_.out + (row + r) * part_.out_stride + out, rows[r], num_outs);
      const __mmask16 nan = _mm512_cmp_ps_mask(rows[r], rows[r], _CMP_UNORD_Q);
      const auto written = static_cast<__mmask16>((1u << num_outs) - 1);
      if ((nan & written) != 0) multiply_by_vectors(row + r, out, num_outs, nan & written);
    }
  }

  // Computes elements with vector instructions instead. Infinities cannot be split into bf16 parts: they
  // become NaN in tiles, where the product may not be NaN.
  void multiply_by_vectors(int64_t row, int64_t out, int num_outs, __mmask16 which) {
    alignas(64) float products[kTileOuts];
    linear_kernel_avx512().skinny({.x = part_.x + row * part_.x_stride,
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
  const WeightReader<T> weights_;
  Scratch& scratch_;
};

void multiply(const LinearPart& part, const PackedRows& packed, void* scratch) {
  visit_weight(part.weight, part.weight_dtype,
               [&]<class T>(const T*) { TileTask<T>(part, packed, scratch).run(); });
  add_bias<Avx512>(part);
}

}  // namespace

TileLinear tile_linear_amx() { return {.pack = &pack, .multiply = &multiply}; }

}  // namespace attend::kernels::cpu
