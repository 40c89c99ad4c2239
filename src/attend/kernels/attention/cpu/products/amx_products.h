// Products of an item with AMX tiles, in bfloat16 parts (amx_parts.h): q and P have the number of parts that
// the dtype of q requires, K and V that of their own dtype. Results have the accuracy of float32 arithmetic
// for a float32 q, and of bfloat16 arithmetic with float32 sums for a bfloat16 q. K is transposed while it is
// packed; few rows avoid this (amx_skinny_fp8.h).
#pragma once

#include "attend/kernels/attention/cpu/products/amx_rows.h"
#include "attend/kernels/common/cpu/amx_parts.h"
#include "attend/kernels/common/cpu/amx_tiles.h"

namespace attend::kernels::cpu {
namespace {

// Q, T: element types of q, and of K and V.
template <class Q, class T>
class AmxProducts {
 public:
  using Simd = Avx512;
  static constexpr int kPVecs = 2;

  explicit AmxProducts(const ItemContext& context)
      : problem_(context.problem),
        context_(context),
        scratch_(context.scratch),
        dim_(row_stride(problem_.k.dim)) {}

  void pack_queries() {
    for (int row = 0; row < context_.num_rows; ++row) {
      load_query<Q>(context_, row, scratch_.query);
      for (int d = 0; d < dim_; d += kTileInner) {
        Pairs parts[kQParts];
        split(_mm512_loadu_ps(scratch_.query + d), _mm512_loadu_ps(scratch_.query + d + 16), parts);
        for (int part = 0; part < kQParts; ++part) {
          if (!kPairsAreStrided<T>) parts[part] = to_adjacent(parts[part]);
          _mm512_storeu_si512(q() + (row * kQParts + part) * dim_ + d, parts[part]);
        }
      }
    }
  }

  void multiply_keys(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    prefetch_runs(problem_, next);
    pack_keys(tile);
    multiply_tiles<kQParts, kKvParts, false>({.a = q(),
                                              .a_stride = kQParts * dim_,
                                              .a_part = dim_,
                                              .b = k(),
                                              .b_stride = kTileKeys,
                                              .b_part = dim_ / 2 * kTileKeys,
                                              .c = scratch_.scores,
                                              .c_stride = kTileKeys,
                                              .num_inner = dim_},
                                             row_begin / kTileSide, round_up_to_tiles(row_end),
                                             kTileKeys / kTileSide);
  }

  void store_p(int row, int key, const __m512 (&p)[2]) {
    Pairs parts[kQParts];
    split_p_to_bf16(p, parts);
    for (int part = 0; part < kQParts; ++part)
      _mm512_storeu_si512(p_row(row) + part * kTileKeys + key, parts[part]);
  }

  void add_values(const TileRows& tile, const TileRows&, int row_begin, int row_end) {
    pack_values(tile);
    const int tile_begin = row_begin / kTileSide, tile_end = round_up_to_tiles(row_end);
    // Whole tiles of rows are multiplied: P is 0 for rows that this tile of keys does not concern.
    const auto clear_p = [&](int begin, int end) {
      for (int i = begin * kQParts * kTileKeys; i < end * kQParts * kTileKeys; ++i) scratch_.p[i] = 0;
    };
    clear_p(tile_begin * kTileSide, row_begin);
    clear_p(row_end, tile_end * kTileSide);
    for (int row = row_begin; row < row_end; ++row)
      rescale_row(scratch_.acc + row * context_.stride_v, scratch_.row_rescale[row], context_.stride_v);
    multiply_tiles<kQParts, kKvParts, true>({.a = scratch_.p,
                                             .a_stride = kQParts * kTileKeys,
                                             .a_part = kTileKeys,
                                             .b = v(),
                                             .b_stride = context_.stride_v,
                                             .b_part = kKeyPairs * context_.stride_v,
                                             .c = scratch_.acc,
                                             .c_stride = context_.stride_v,
                                             .num_inner = kTileKeys},
                                            tile_begin, tile_end, context_.stride_v / kTileSide);
  }

  // Pairs of rows of V are stored in blocks of 32 columns in another order.
  void restore_columns(float* row) const {
    if constexpr (!kPairsAreStrided<T>)
      for (int d = 0; d < context_.stride_v; d += 32) {
        __m512 columns[2] = {_mm512_loadu_ps(row + d), _mm512_loadu_ps(row + d + 16)};
        Bf16Mac::restore_columns<T>(columns);
        _mm512_storeu_ps(row + d, columns[0]);
        _mm512_storeu_ps(row + d + 16, columns[1]);
      }
  }

 private:
  static constexpr int kQParts = kNumBf16Parts<Q>, kKvParts = kNumBf16Parts<T>;
  static constexpr int kKeyPairs = kTileKeys / 2;

  static int round_up_to_tiles(int rows) { return (rows + kTileSide - 1) / kTileSide; }

  uint16_t* q() const { return static_cast<uint16_t*>(scratch_.q); }  // [rows, parts, dim_]
  uint32_t* k() const { return static_cast<uint32_t*>(scratch_.k); }  // [parts, dim_ / 2, kTileKeys]
  uint32_t* v() const { return static_cast<uint32_t*>(scratch_.v); }  // [parts, kKeyPairs, stride_v]
  uint16_t* p_row(int row) const { return scratch_.p + row * kQParts * kTileKeys; }

  void pack_keys(const TileRows& tile) {
    const Bf16PartsReader<T> reader = reader_;
    const int dim = problem_.k.dim, whole = dim / 32 * 32;
    uint32_t* const to = k();
    const int64_t part_pairs = dim_ / 2 * kTileKeys;
    for (int key = 0; key < kTileKeys; key += 16) {
      const bool all = (tile.present >> key & 0xffff) == 0xffff;
      for (int d = 0; d < dim_; d += kTileInner) {
        Pairs rows[kKvParts][16];
        unrolled<16>([&](auto i) {
          Pairs parts[kKvParts];
          if (all && d < whole)
            reader.read(reinterpret_cast<const T*>(tile.k[key + i]) + d, parts);
          else
            read_checked(reader, tile.k[key + i], d, dim, parts);
          unrolled<kKvParts>([&](auto part) { rows[part][i] = parts[part]; });
        });
        unrolled<kKvParts>([&](auto part) {
          Bf16Mac::transpose(rows[part]);
          for (int i = 0; i < 16; ++i)
            _mm512_storeu_si512(to + part * part_pairs + (d / 2 + i) * kTileKeys + key, rows[part][i]);
        });
      }
    }
  }

  // A pair of V has keys 16 apart, as in P.
  void pack_values(const TileRows& tile) {
    const Bf16PartsReader<T> reader = reader_;
    const int dim = problem_.v.dim, end = context_.stride_v;
    const int64_t part_pairs = kKeyPairs * end;
    uint32_t* to = v();
    for (int pair = 0; pair < kKeyPairs; ++pair, to += end) {
      const int key = pair / 16 * 32 + pair % 16;
      pack_value_pair(reader, tile.v[key], tile.v[key + 16], dim, end, part_pairs, to);
    }
  }

  static void pack_value_pair(const Bf16PartsReader<T>& reader, const char* first, const char* second,
                              int dim, int end, int64_t part_pairs, uint32_t* to) {
    const auto store = [&](int d, const Pairs(&a)[kKvParts], const Pairs(&b)[kKvParts]) {
      for (int part = 0; part < kKvParts; ++part) {
        Pairs low, high;
        combine_rows<T>(a[part], b[part], low, high);
        _mm512_storeu_si512(to + part * part_pairs + d, low);
        _mm512_storeu_si512(to + part * part_pairs + d + 16, high);
      }
    };
    Pairs parts[kKvParts], others[kKvParts];
    if (first != nullptr && second != nullptr && dim == end) {
      const T* const a = reinterpret_cast<const T*>(first);
      const T* const b = reinterpret_cast<const T*>(second);
      for (int d = 0; d < end; d += 32) {
        reader.read(a + d, parts);
        reader.read(b + d, others);
        store(d, parts, others);
      }
      return;
    }
    for (int d = 0; d < end; d += 32) {
      read_checked(reader, first, d, dim, parts);
      read_checked(reader, second, d, dim, others);
      store(d, parts, others);
    }
  }

  // Reads the block at element d of a row; zeros past its end and for a null row.
  static void read_checked(const Bf16PartsReader<T>& reader, const char* row, int d, int dim,
                           Pairs (&parts)[kKvParts]) {
    if (row == nullptr) {
      for (Pairs& part : parts) part = _mm512_setzero_si512();
      return;
    }
    const T* const elements = reinterpret_cast<const T*>(row) + d;
    if (d + 32 <= dim)
      reader.read(elements, parts);
    else
      reader.read_first(elements, dim - d, parts);
  }

  const AttentionProblem& problem_;
  const ItemContext& context_;
  TileScratch& scratch_;
  const int dim_;  // columns of K, in whole blocks
  const Bf16PartsReader<T> reader_{};
  const FullAmxTiles tiles_;
};

}  // namespace
}  // namespace attend::kernels::cpu
