// out = x W^T for bf16 weights by the matrix tiles of AMX, as the driver (linear.cc) sees it.
//
// A tile instruction multiplies 16 output features x 32 input features with 32 input features x 16 rows in
// bf16 and sums in f32, some 15 times as fast as f32 vectors do. A row of x is split into three bf16 vectors
// whose sum is x to its last bit, so products are exact and the result is that of f32 arithmetic, at three
// multiplications. (The instruction takes denormals for zero.)
#pragma once

#include <cstdint>

#include "attend/kernels/cpu/linear_kernel.h"

namespace attend::kernels::cpu {

inline constexpr int kTileRows = 16;   // rows of x in a tile
inline constexpr int kTileOuts = 16;   // output features in a tile
inline constexpr int kTileSteps = 32;  // input features in a tile
inline constexpr int kTileParts = 3;   // bf16 vectors that a row is split into
inline constexpr int64_t kTileBytes = 1024;
// Rows that are packed at once and share each read of the weights, and output features of a task at most,
// which share each read of the packed rows. Some input features of all rows, and the sums, stay in the L2
// cache.
inline constexpr int kTileMaxRows = 256;
inline constexpr int64_t kTileTaskOuts = 512;
inline constexpr int64_t kTileMinTaskOuts = 32;
inline constexpr int64_t kTileScratchBytes = (kTileMaxRows * 4 + 512) * kTileTaskOuts;
// From here on tiles are faster than the kernel of few rows.
inline constexpr int kTileMinRows = 5;

// Input features after which a task turns to its next rows, so that two tiles of rows stay in the L1 cache.
inline constexpr int kTileBlockFeatures = 256;
inline constexpr int64_t kTileBlockBytes = kTileBlockFeatures / kTileSteps * kTileParts * kTileBytes;

// Packed rows: [blocks of input features][tiles of rows][tiles of input features][kTileParts][kTileBytes].
struct PackedRows {
  char* data;  // aligned to 64
  int64_t num_row_tiles;

  char* block(int64_t feature, int64_t row_tile) const {
    return data + (feature / kTileBlockFeatures * num_row_tiles + row_tile) * kTileBlockBytes;
  }
};

struct TileLinear {
  // Packs a tile of rows: the up to kTileRows rows of `part` (x, x_stride, num_rows, in_features); what lies
  // beyond them is zero.
  void (*pack)(const LinearPart& part, const PackedRows& packed, int64_t row_tile) = nullptr;
  // `part` with up to kTileMaxRows rows and kTileTaskOuts output features, its x given packed. `scratch`:
  // kTileScratchBytes for the time of the call, aligned to 64.
  void (*multiply)(const LinearPart& part, const PackedRows& packed, void* scratch) = nullptr;
};
TileLinear tile_linear_amx();

}  // namespace attend::kernels::cpu
