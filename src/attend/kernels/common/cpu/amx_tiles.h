// AMX tiles (eight registers of 16 rows of 64 bytes), and products of packed matrices with them.
//
// tdpbf16ps adds to each of 16 x 16 float32 sums the products of 32 bfloat16 elements of a row of A and a
// column of B. Rows of B hold pairs of inner elements. Denormals are treated as zero (Intel SDM, TDPBF16PS).
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/unroll.h"

namespace attend::kernels::cpu {
namespace {

inline constexpr int kTileSide = 16;   // rows of A and of sums, columns of B and of sums
inline constexpr int kTileInner = 32;  // elements that one instruction sums over
inline constexpr int kTileRowBytes = 64;

// Single instructions, with the memory clobber that gcc's wrappers lack.
template <int kTile>
[[gnu::always_inline]] inline void load_tile(const void* rows, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void store_tile(void* rows, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kSums, int kA, int kB>
[[gnu::always_inline]] inline void multiply_tile() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
}

// Rows of each tile register; rows always have all 64 bytes.
struct TileRowCounts {
  int rows[8] = {kTileSide, kTileSide, kTileSide, kTileSide, kTileSide, kTileSide, kTileSide, kTileSide};
};

// Configures tiles of these shapes during its lifetime. Other code of this thread must not use tiles at the
// same time.
class AmxTileConfig {
 public:
  explicit AmxTileConfig(const TileRowCounts& counts) {
    // Intel SDM, LDTILECFG.
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t num_rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = kTileRowBytes;
      config.num_rows[tile] = static_cast<uint8_t>(counts.rows[tile]);
    }
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  ~AmxTileConfig() { asm volatile("tilerelease" ::: "memory"); }
  AmxTileConfig(const AmxTileConfig&) = delete;
  AmxTileConfig& operator=(const AmxTileConfig&) = delete;
};

class FullAmxTiles : public AmxTileConfig {
 public:
  FullAmxTiles() : AmxTileConfig(TileRowCounts{}) {}
};

// c = a b, or c += a b, summed over parts. A value may be a sum of bfloat16 parts, the largest part first.
struct TileProduct {
  const uint16_t* a;  // [rows, inner] per part
  int64_t a_stride;   // stride between rows, in elements
  int64_t a_part;     // stride between parts, in elements
  const uint32_t* b;  // [inner / 2 pairs, columns] per part
  int64_t b_stride;   // stride between rows, in pairs
  int64_t b_part;
  float* c;  // [rows, columns]
  int64_t c_stride;
  int num_inner;  // multiple of kTileInner
};

// Products of parts above this order are below the last bit of a float32.
inline constexpr int kMaxPartOrder = 2;

// Multiplies kRows x kColumns tiles of c at a tile row and tile column, in registers 0 to 3.
template <int kRows, int kColumns, int kAParts, int kBParts, bool kAdd>
void multiply_tile_group(const TileProduct& product, int tile_row, int tile_column) {
  const int64_t a_bytes = product.a_stride * 2, b_bytes = product.b_stride * 4,
                c_bytes = product.c_stride * 4;
  const uint16_t* const a = product.a + tile_row * kTileSide * product.a_stride;
  const uint32_t* const b = product.b + tile_column * kTileSide;
  float* const c = product.c + tile_row * kTileSide * product.c_stride + tile_column * kTileSide;
  const int64_t a_stride = product.a_stride, c_stride = product.c_stride;
  const int64_t a_part = product.a_part, b_part = product.b_part, b_stride = product.b_stride;
  const int num_inner = product.num_inner;
  unrolled<kRows>([&](auto row) {
    unrolled<kColumns>([&](auto column) {
      if constexpr (kAdd)
        load_tile<row * kColumns + column>(c + row * kTileSide * c_stride + column * kTileSide, c_bytes);
      else
        zero_tile<row * kColumns + column>();
    });
  });
  // Computes all products of an inner step before the next, so that parts are reused while they are cached.
  for (int inner = 0; inner < num_inner; inner += kTileInner)
    unrolled<kBParts>([&](auto part_b) {
      unrolled<kColumns>([&](auto column) {
        load_tile<6 + column>(b + part_b * b_part + inner / 2 * b_stride + column * kTileSide, b_bytes);
      });
      unrolled<kAParts>([&](auto part_a) {
        if constexpr (part_a + part_b <= kMaxPartOrder)
          unrolled<kRows>([&](auto row) {
            load_tile<4 + row>(a + part_a * a_part + row * kTileSide * a_stride + inner, a_bytes);
            unrolled<kColumns>(
                [&](auto column) { multiply_tile<row * kColumns + column, 4 + row, 6 + column>(); });
          });
      });
    });
  unrolled<kRows>([&](auto row) {
    unrolled<kColumns>([&](auto column) {
      store_tile<row * kColumns + column>(c + row * kTileSide * c_stride + column * kTileSide, c_bytes);
    });
  });
}

// Multiplies the tiles of rows [row_begin, row_end) and columns [0, num_columns), in units of tiles.
template <int kAParts, int kBParts, bool kAdd>
void multiply_tiles(const TileProduct& product, int row_begin, int row_end, int num_columns) {
  const auto multiply_columns = [&]<int kRows>(int row, Index<kRows>) {
    int column = 0;
    for (; column + 2 <= num_columns; column += 2)
      multiply_tile_group<kRows, 2, kAParts, kBParts, kAdd>(product, row, column);
    if (column < num_columns) multiply_tile_group<kRows, 1, kAParts, kBParts, kAdd>(product, row, column);
  };
  int row = row_begin;
  for (; row + 2 <= row_end; row += 2) multiply_columns(row, Index<2>{});
  if (row < row_end) multiply_columns(row, Index<1>{});
}

}  // namespace
}  // namespace attend::kernels::cpu
