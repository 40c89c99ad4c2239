// TileScratch: memory that one thread needs to attend a tile of query rows to tiles of keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/attention/unmasked_keys.h"

namespace attend::kernels::cpu {

// Keys that are processed together; boundaries are at multiples of it. The mask of a row within a tile is one
// 64-bit word.
inline constexpr int kTileKeys = 64;

// Approximate number of rows of a query tile, counting all query heads of a KV head. q_tile_tokens() returns
// the tile's tokens.
inline constexpr int kTileRows = 128;
int q_tile_tokens(const AttentionPlanLimits& limits);

// Stride of the rows of q, v and the sums: whole pairs of vectors of the widest instruction set.
constexpr int row_stride(int dim) { return (dim + 31) / 32 * 32; }

// Upper bounds of a tile. A tile has num_tokens x group rows: every query head of one KV head.
struct TileShape {
  int num_tokens = 0;
  int group = 0;
  int head_dim_qk = 0, head_dim_v = 0;
  bool merges_splits = false;  // partial results are merged inside a work item

  // Rows padded to whole AMX tiles: data after a tile's last row may be overwritten.
  int num_rows() const { return (num_tokens * group + 15) / 16 * 16; }
  // Shape for every layer that a plan with these limits may serve: head_dim_qk is at most 256, or head_dim_v
  // plus the rope columns of MLA.
  static TileShape make(const AttentionPlanLimits& limits);

  int stride_qk() const { return row_stride(head_dim_qk); }
  int stride_v() const { return row_stride(head_dim_v); }
};

// Layout of a 64-byte aligned memory block, which it does not own. A step is 4 bytes of the inner dimension
// of a product: one f32, or a pair of bf16.
struct TileScratch {
  TileScratch(const TileShape& shape, void* memory);
  static size_t num_bytes(const TileShape& shape);

  void* q;                   // [rows, stride_qk] steps, or up to three parts of 2 bytes per element
  void* k;                   // [head_dim_qk steps, kTileKeys]
  void* v;                   // [kTileKeys steps, stride_v]
  uint16_t* rows;            // [kTileKeys, stride_qk] rows of fp8 or scaled latent rows, converted to 16 bits
  float* scores;             // [rows, kTileKeys]; P, as steps, may overwrite it
  uint16_t* p;               // [rows, 3 parts, kTileKeys]
  float* query;              // [stride_qk] one row of q
  float* acc;                // [rows, stride_v] sum of p * v
  float* row_max;            // [rows]
  float* row_sum;            // [rows, 16] sums of P, one per lane
  float* row_rescale;        // [rows] factor of the accumulators when the maximum increases
  float* merged;             // [rows, stride_v]
  float* merged_lse;         // [rows]
  UnmaskedKeys* visible;     // [num_tokens]
  uint64_t* unmasked_words;  // [2, num_tokens]: of this tile of keys and the next
};

}  // namespace attend::kernels::cpu
