// The products of an item of few rows, as in decode, with AMX tiles.
//
// K and V of a tile are first read from end to end, in the order in which they lie, and put down in the first
// level cache as bfloat16: that pass keeps a hardware prefetcher busy and costs little more than the read. Then
// S^T = K Q^T, whose rows are keys, needs no transposed K, and only the scores are transposed. The bfloat16
// parts of q (amx_parts.h) are columns beside one another there.
#pragma once

#include <bit>
#include <cstring>

#include "attend/kernels/cpu/amx_blocks.h"
#include "attend/kernels/cpu/amx_parts.h"
#include "attend/kernels/cpu/amx_tiles.h"
#include "attend/kernels/cpu/amx_rows.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kFewAmxRows = 8;

// For up to kFewAmxRows rows. Q: element type of q. T: bf16 or fp8, of K and V.
template <class Q, class T>
class AmxFewRows {
 public:
  using Simd = Avx512;
  static constexpr int kWeightVecs = 2;

  // Whether K and V come in whole blocks.
  static bool serves(const AttentionProblem& problem) {
    return problem.k.dim % Blocks::kElements == 0 && problem.v.dim % Blocks::kElements == 0;
  }

  explicit AmxFewRows(const ItemContext& context)
      : problem_(context.problem),
        context_(context),
        scratch_(context.scratch),
        k_dim_(problem_.k.dim),
        v_dim_(problem_.v.dim),
        row_groups_((context.num_rows + 3) / 4),
        tiles_(value_rows(context.num_rows)) {}

  void pack_queries() {
    std::memset(q(), 0, static_cast<size_t>(num_column_tiles() * k_dim_ / 2 * kTileRowBytes));
    for (int row = 0; row < context_.num_rows; ++row) {
      load_query<Q>(context_, row, scratch_.query);
      Blocks::order_query(scratch_.query, k_dim_);
      for (int d = 0; d < k_dim_; d += kTileInner) {
        Pairs parts[kQParts];
        split(_mm512_loadu_ps(scratch_.query + d), _mm512_loadu_ps(scratch_.query + d + 16), parts);
        for (int part = 0; part < kQParts; ++part) {
          alignas(64) uint32_t pairs[16];
          _mm512_store_si512(pairs, to_neighbours(parts[part]));
          const int column = (part * row_groups_ + row / 4) * 4 + row % 4;
          uint32_t* const to = q() + (column / kTileSide * k_dim_ + d) / 2 * kTileSide + column % kTileSide;
          for (int i = 0; i < 16; ++i) to[i * kTileSide] = pairs[i];
        }
      }
    }
  }

  void multiply_keys(const TileRows& tile, const TileRows& next, int, int) {
    pack_keys(tile);
    prefetch_runs(problem_, next);
    for (int column_tile = 0; column_tile < num_column_tiles(); ++column_tile) {
      multiply_key_tiles(q() + column_tile * (k_dim_ / 2 * kTileSide));
      constexpr int kTileGroups = kTileSide / 4;
      for (int i = 0; i < kTileGroups; ++i) {
        const int group = column_tile * kTileGroups + i;
        if (group >= kQParts * row_groups_) break;
        add_scores(i * 4, group % row_groups_ * 4, group < row_groups_);
      }
    }
  }

  void store_weights(int row, int key, const __m512 (&weights)[2]) {
    Pairs parts[kQParts];
    split_weights(weights, parts);
    for (int part = 0; part < kQParts; ++part)
      _mm512_storeu_si512(weights_of(row) + part * kTileKeys + key, to_neighbours(parts[part]));
  }

  void add_values(const TileRows& tile, const TileRows&, int row_begin, int row_end) {
    pack_values(tile);
    for (int row = 0; row < context_.num_rows; ++row) {
      // All rows are multiplied: those that this tile of keys does not concern get nothing added.
      if (row < row_begin || row >= row_end)
        for (int i = 0; i < kQParts * kTileKeys; ++i) weights_of(row)[i] = 0;
      else
        rescale_row(scratch_.acc + row * v_dim_, scratch_.row_rescale[row], v_dim_);
    }
    multiply_value_tiles();
  }

  void restore_columns(float* row) const { Blocks::restore_columns(row, v_dim_); }

 private:
  using Blocks = AmxBlocks<T>;
  static constexpr int kQParts = kNumParts<Q>;

  // Tile registers. Sums and weights of V's products have as many rows as the item.
  static constexpr int kKeySums = 0, kKeys = 2, kValueSums = 4, kWeights = 6, kOperand = 7;
  static TileRowCounts value_rows(int num_rows) {
    TileRowCounts counts;
    for (int tile : {kValueSums, kValueSums + 1, kWeights}) counts.rows[tile] = num_rows;
    return counts;
  }

  int num_column_tiles() const { return (kQParts * row_groups_ * 4 + kTileSide - 1) / kTileSide; }

  uint32_t* q() const { return static_cast<uint32_t*>(scratch_.q); }  // [column tiles, k_dim_ / 2, 16]
  uint16_t* k() const { return static_cast<uint16_t*>(scratch_.k); }  // [kTileKeys, k_dim_]
  uint32_t* v() const { return static_cast<uint32_t*>(scratch_.v); }  // [kTileKeys / 2, v_dim_]
  uint16_t* weights_of(int row) const { return scratch_.weights + row * kQParts * kTileKeys; }

  void pack_keys(const TileRows& tile) {
    const char* const any_row = tile.k[std::countr_zero(tile.present)];
    const Blocks blocks = blocks_;
    const int dim = k_dim_;
    uint16_t* to = k();
    for (int key = 0; key < kTileKeys; ++key, to += dim) {
      const T* const row = reinterpret_cast<const T*>(tile.k[key] != nullptr ? tile.k[key] : any_row);
      for (int d = 0; d < dim; d += Blocks::kElements) blocks.convert_keys(row + d, to + d);
    }
  }

  // products_ = K Q^T for 16 columns of q.
  void multiply_key_tiles(const uint32_t* q_columns) {
    const int dim = k_dim_;
    const int64_t row_bytes = dim * 2;
    const uint16_t* keys = k();
    for (int key = 0; key < kTileKeys; key += 2 * kTileSide, keys += 2 * kTileSide * dim) {
      zero_tile<kKeySums>();
      zero_tile<kKeySums + 1>();
      for (int d = 0; d < dim; d += kTileInner) {
        load_tile<kOperand>(q_columns + d / 2 * kTileSide, kTileRowBytes);
        load_tile<kKeys>(keys + d, row_bytes);
        multiply_tile<kKeySums, kKeys, kOperand>();
        load_tile<kKeys + 1>(keys + kTileSide * dim + d, row_bytes);
        multiply_tile<kKeySums + 1, kKeys + 1, kOperand>();
      }
      store_tile<kKeySums>(products_ + key * kTileSide, kTileRowBytes);
      store_tile<kKeySums + 1>(products_ + (key + kTileSide) * kTileSide, kTileRowBytes);
    }
  }

  // scores of four rows = (or +=) four columns of products_.
  void add_scores(int column, int row, bool is_first) {
    for (int key = 0; key < kTileKeys; key += 16) {
      // Each 128 bits of quads[i] are the columns of one key: i, 4 + i, 8 + i, 12 + i.
      __m512 quads[4];
      unrolled<4>([&](auto i) {
        const float* const from = products_ + (key + i) * kTileSide + column;
        const auto key_columns = [&](int n) { return _mm_load_ps(from + n * 4 * kTileSide); };
        __m512 quad = _mm512_castps128_ps512(key_columns(0));
        quad = _mm512_insertf32x4(quad, key_columns(1), 1);
        quad = _mm512_insertf32x4(quad, key_columns(2), 2);
        quads[i] = _mm512_insertf32x4(quad, key_columns(3), 3);
      });
      const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(quads[0], quads[1]));
      const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(quads[0], quads[1]));
      const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(quads[2], quads[3]));
      const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(quads[2], quads[3]));
      const __m512d rows[4] = {_mm512_unpacklo_pd(low01, low23), _mm512_unpackhi_pd(low01, low23),
                               _mm512_unpacklo_pd(high01, high23), _mm512_unpackhi_pd(high01, high23)};
      unrolled<4>([&](auto i) {
        float* const to = scratch_.scores + (row + i) * kTileKeys + key;
        const __m512 scores = _mm512_castpd_ps(rows[i]);
        _mm512_storeu_ps(to, is_first ? scores : _mm512_add_ps(_mm512_loadu_ps(to), scores));
      });
    }
  }

  // A pair of V are neighbouring keys, as in the weights.
  void pack_values(const TileRows& tile) {
    const Blocks blocks = blocks_;
    const int dim = v_dim_;
    uint32_t* to = v();
    for (int key = 0; key < kTileKeys; key += 2, to += dim) {
      const T* const first = reinterpret_cast<const T*>(tile.v[key]);
      const T* const second = reinterpret_cast<const T*>(tile.v[key + 1]);
      if (first != nullptr && second != nullptr)
        for (int d = 0; d < dim; d += Blocks::kElements) blocks.convert_values(first + d, second + d, to + d);
      else
        for (int d = 0; d < dim; d += Blocks::kElements)
          blocks.convert_present_values(first == nullptr ? nullptr : first + d,
                                        second == nullptr ? nullptr : second + d, to + d);
    }
  }

  // acc += weights V, two tiles of columns at a time.
  void multiply_value_tiles() {
    const int dim = v_dim_;
    const int64_t sum_bytes = dim * 4, weight_bytes = kQParts * kTileKeys * 2;
    float* sums = scratch_.acc;
    const uint16_t* const weights = scratch_.weights;
    const uint32_t* values = v();
    for (int d = 0; d < dim; d += 2 * kTileSide, sums += 2 * kTileSide, values += 2 * kTileSide) {
      load_tile<kValueSums>(sums, sum_bytes);
      load_tile<kValueSums + 1>(sums + kTileSide, sum_bytes);
      for (int part = 0; part < kQParts; ++part)
        for (int key = 0; key < kTileKeys; key += kTileInner) {
          const uint32_t* const pairs = values + key / 2 * dim;
          load_tile<kWeights>(weights + part * kTileKeys + key, weight_bytes);
          load_tile<kOperand>(pairs, sum_bytes);
          multiply_tile<kValueSums, kWeights, kOperand>();
          load_tile<kOperand>(pairs + kTileSide, sum_bytes);
          multiply_tile<kValueSums + 1, kWeights, kOperand>();
        }
      store_tile<kValueSums>(sums, sum_bytes);
      store_tile<kValueSums + 1>(sums + kTileSide, sum_bytes);
    }
  }

  const AttentionProblem& problem_;
  const ItemContext& context_;
  TileScratch& scratch_;
  const int k_dim_, v_dim_;
  const int row_groups_;  // of four rows
  const Blocks blocks_{};
  const ConfiguredTiles tiles_;
  alignas(64) float products_[kTileKeys * kTileSide];
};

}  // namespace
}  // namespace attend::kernels::cpu
