// Products of an item of few rows, as in decode, with fp8 K and V and AMX tiles.
//
// Vector kernels spend most of their time on the conversion of fp8 to float32; conversion to bfloat16
// (fp8_blocks.h) needs a third of the instructions. S^T = K Q^T, with keys as rows, needs no transposed K:
// only the scores are transposed. The bfloat16 parts of q (amx_parts.h) are adjacent columns of Q^T. Keys are
// converted and multiplied one tile register at a time, so that the conversion of one overlaps with the
// products of another.
#pragma once

#include <bit>
#include <cstring>

#include "attend/kernels/attention/cpu/products/amx_rows.h"
#include "attend/kernels/attention/cpu/products/fp8_blocks.h"
#include "attend/kernels/common/cpu/amx_parts.h"
#include "attend/kernels/common/cpu/amx_tiles.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kMaxSkinnyAmxRows = 8;

// For up to kMaxSkinnyAmxRows rows. Q: element type of q; T: element type of K and V.
template <class Q, class T>
class AmxSkinnyFp8 {
 public:
  using Simd = Avx512;
  static constexpr int kPVecs = 2;

  // Returns true if rows of K and V are whole blocks.
  static bool serves(const AttentionProblem& problem) {
    return problem.k.dim % Fp8Blocks<T>::kElements == 0 && problem.v.dim % Fp8Blocks<T>::kElements == 0;
  }

  explicit AmxSkinnyFp8(const ItemContext& context)
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
      Fp8Blocks<T>::order_query(scratch_.query, k_dim_);
      for (int d = 0; d < k_dim_; d += kTileInner) {
        Pairs parts[kQParts];
        split(_mm512_loadu_ps(scratch_.query + d), _mm512_loadu_ps(scratch_.query + d + 16), parts);
        for (int part = 0; part < kQParts; ++part) {
          alignas(64) uint32_t pairs[16];
          _mm512_store_si512(pairs, to_adjacent(parts[part]));
          const int column = (part * row_groups_ + row / 4) * 4 + row % 4;
          uint32_t* const to = q() + (column / kTileSide * k_dim_ + d) / 2 * kTileSide + column % kTileSide;
          for (int i = 0; i < 16; ++i) to[i * kTileSide] = pairs[i];
        }
      }
    }
  }

  void multiply_keys(const TileRows& tile, const TileRows& next, int, int) {
    prefetch_run_starts(problem_, next);
    for (int key = 0; key < kTileKeys; key += kTileSide) {
      if ((tile.present >> key & 0xffff) == 0) continue;
      pack_keys(tile, next, key);
      for (int column_tile = 0; column_tile < num_column_tiles(); ++column_tile)
        multiply_key_tile(q() + column_tile * (k_dim_ / 2 * kTileSide),
                          products_ + (column_tile * kTileKeys + key) * kTileSide);
    }
    for (int group = 0; group < kQParts * row_groups_; ++group)
      add_scores(products_ + group / 4 * kTileKeys * kTileSide + group % 4 * 4, group % row_groups_ * 4,
                 group < row_groups_);
  }

  void store_p(int row, int key, const __m512 (&p)[2]) {
    Pairs parts[kQParts];
    split_p_to_bf16(p, parts);
    for (int part = 0; part < kQParts; ++part)
      _mm512_storeu_si512(p_row(row) + part * kTileKeys + key, to_adjacent(parts[part]));
  }

  void add_values(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    for (int row = 0; row < context_.num_rows; ++row) {
      // All rows are multiplied: P is 0 for rows that this tile of keys does not concern.
      if (row < row_begin || row >= row_end)
        for (int i = 0; i < kQParts * kTileKeys; ++i) p_row(row)[i] = 0;
      else
        rescale_row(scratch_.acc + row * v_dim_, scratch_.row_rescale[row], v_dim_);
    }
    for (int key = 0; key < kTileKeys; key += kTileInner) {
      if ((tile.present >> key & 0xffffffff) == 0) continue;
      pack_values(tile, next, key);
      multiply_value_tiles(key);
    }
  }

  void restore_columns(float* row) const { Fp8Blocks<T>::restore_columns(row, v_dim_); }

 private:
  static constexpr int kQParts = kNumBf16Parts<Q>;

  // Prefetches a line of the next tile.
  static void prefetch(const char* row, int d) {
    if (row != nullptr) __builtin_prefetch(row + d, 0, 2);
  }

  // Tile registers. Accumulators and P of the products with V have the item's number of rows.
  static constexpr int kKeySums = 0, kKeys = 1, kQueries = 2;
  static constexpr int kValueSums = 3, kP = 5, kValues = 6;
  static TileRowCounts value_rows(int num_rows) {
    TileRowCounts counts;
    for (int tile : {kValueSums, kValueSums + 1, kP}) counts.rows[tile] = num_rows;
    return counts;
  }

  int num_column_tiles() const { return (kQParts * row_groups_ * 4 + kTileSide - 1) / kTileSide; }

  uint32_t* q() const { return static_cast<uint32_t*>(scratch_.q); }  // [column tiles, k_dim_ / 2, 16]
  uint16_t* k() const { return static_cast<uint16_t*>(scratch_.k); }  // [kTileSide keys, k_dim_]
  uint32_t* v() const {
    return static_cast<uint32_t*>(scratch_.v);
  }  // [kTileInner / 2 pairs of keys, v_dim_]
  uint16_t* p_row(int row) const { return scratch_.p + row * kQParts * kTileKeys; }

  // Converts the keys of one tile register.
  void pack_keys(const TileRows& tile, const TileRows& next, int first_key) {
    const char* const any_row = tile.k[std::countr_zero(tile.present)];
    const Fp8Blocks<T> blocks = blocks_;
    const int dim = k_dim_;
    uint16_t* to = k();
    for (int key = first_key; key < first_key + kTileSide; ++key, to += dim) {
      const char* const row = tile.k[key] != nullptr ? tile.k[key] : any_row;
      for (int d = 0; d < dim; d += Fp8Blocks<T>::kElements) {
        prefetch(next.k[key], d);
        blocks.convert_keys(row + d, to + d);
      }
    }
  }

  // products = K Q^T for 16 columns of q.
  void multiply_key_tile(const uint32_t* q_columns, float* products) {
    const int dim = k_dim_;
    const uint16_t* const keys = k();
    zero_tile<kKeySums>();
    for (int d = 0; d < dim; d += kTileInner) {
      load_tile<kQueries>(q_columns + d / 2 * kTileSide, kTileRowBytes);
      load_tile<kKeys>(keys + d, dim * 2);
      multiply_tile<kKeySums, kKeys, kQueries>();
    }
    store_tile<kKeySums>(products, kTileRowBytes);
  }

  // scores of four rows = (or +=) four columns of products.
  void add_scores(const float* products, int row, bool is_first) {
    for (int key = 0; key < kTileKeys; key += 16) {
      // Each 128 bits of quads[i] are the columns of one key: i, 4 + i, 8 + i, 12 + i.
      __m512 quads[4];
      unrolled<4>([&](auto i) {
        const float* const from = products + (key + i) * kTileSide;
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

  // Converts the values of the keys that one instruction sums over. Pairs are neighboring keys, as in P.
  void pack_values(const TileRows& tile, const TileRows& next, int first_key) {
    alignas(64) static constexpr char kZeros[Fp8Blocks<T>::kElements] = {};
    const Fp8Blocks<T> blocks = blocks_;
    const int dim = v_dim_;
    uint32_t* to = v();
    for (int key = first_key; key < first_key + kTileInner; key += 2, to += dim) {
      const char* const first = tile.v[key];
      const char* const second = tile.v[key + 1];
      for (int d = 0; d < dim; d += Fp8Blocks<T>::kElements) {
        const char* const a = first != nullptr ? first + d : kZeros;
        const char* const b = second != nullptr ? second + d : kZeros;
        prefetch(next.v[key], d);
        prefetch(next.v[key + 1], d);
        blocks.convert_values(a, b, to + d);
      }
    }
  }

  // acc += P V, two tiles of columns at a time.
  void multiply_value_tiles(int first_key) {
    const int dim = v_dim_;
    const int64_t sum_bytes = dim * 4, p_bytes = kQParts * kTileKeys * 2;
    const uint16_t* const p = scratch_.p + first_key;
    float* sums = scratch_.acc;
    const uint32_t* values = v();
    for (int d = 0; d < dim; d += 2 * kTileSide, sums += 2 * kTileSide, values += 2 * kTileSide) {
      load_tile<kValueSums>(sums, sum_bytes);
      load_tile<kValueSums + 1>(sums + kTileSide, sum_bytes);
      load_tile<kValues>(values, sum_bytes);
      load_tile<kValues + 1>(values + kTileSide, sum_bytes);
      for (int part = 0; part < kQParts; ++part) {
        load_tile<kP>(p + part * kTileKeys, p_bytes);
        multiply_tile<kValueSums, kP, kValues>();
        multiply_tile<kValueSums + 1, kP, kValues + 1>();
      }
      store_tile<kValueSums>(sums, sum_bytes);
      store_tile<kValueSums + 1>(sums + kTileSide, sum_bytes);
    }
  }

  const AttentionProblem& problem_;
  const ItemContext& context_;
  TileScratch& scratch_;
  const int k_dim_, v_dim_;
  const int row_groups_;  // groups of four rows
  const Fp8Blocks<T> blocks_{};
  const AmxTileConfig tiles_;
  static constexpr int kMaxColumnTiles = kQParts * kMaxSkinnyAmxRows / kTileSide + 1;
  alignas(64) float products_[kMaxColumnTiles * kTileKeys * kTileSide];
};

}  // namespace
}  // namespace attend::kernels::cpu
