// out = x W^T by the matrix tiles of AMX, as the driver (linear.cc) sees it.
//
// A tile instruction multiplies 16 output features x 32 input features with 32 input features x 16 rows in
// bf16 and sums in f32, some 15 times as fast as f32 vectors do. Numbers are split into bf16 parts whose sum
// they are to their last bit (amx_parts.h): a row of x into three; weights into one (bf16), two (f16) or
// three (f32). Products of parts are exact. Left out are those that are below 2^-22 of the whole product at
// most, 2^-25 in the mean: so the result is that of f32 arithmetic, at three (bf16), five (f16) or six (f32)
// multiplications. (The instruction takes denormals for zero.)
#pragma once

#include <cstdint>

#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {

inline constexpr int kLinearTileRows = 16;  // rows of x in a tile
inline constexpr int kTileOuts = 16;        // output features in a tile
inline constexpr int kTileSteps = 32;       // input features in a tile
inline constexpr int kTileParts = 3;        // bf16 vectors that a row is split into
inline constexpr int64_t kTileBytes = 1024;
// Output features whose weights are prepared and multiplied together.
inline constexpr int kGroupOutTiles = 4, kGroupOuts = kGroupOutTiles * kTileOuts;
// Rows that are packed at once and share each read of the weights. Some input features of all rows, and the
// sums, stay in the L2 cache.
inline constexpr int kTileMaxRows = 256;
// From here on tiles are faster than the kernel of few rows: weights of fewer parts are sooner prepared.
constexpr int tile_min_rows(DType weight_dtype) {
  return weight_dtype == DType::kF32 ? 13 : weight_dtype == DType::kF16 ? 10 : 5;
}

// Input features after which a task turns to its next rows, so that two tiles of rows stay in the L1 cache.
inline constexpr int kTileBlockFeatures = 256;
inline constexpr int64_t kTileBlockBytes = kTileBlockFeatures / kTileSteps * kTileParts * kTileBytes;

// Output features of a task at most, which share each read of the packed rows. More parts, fewer features.
constexpr int64_t max_tile_task_outs(DType weight_dtype) {
  const int64_t num_parts = weight_dtype == DType::kF32 ? 3 : weight_dtype == DType::kF16 ? 2 : 1;
  return 512 / num_parts / kGroupOuts * kGroupOuts;
}
// A task's memory: the parts of a block of input features of all its weights, and its sums.
inline constexpr int64_t kTileScratchBytes =
    (kTileBlockFeatures * 2 + kTileMaxRows * 4) * max_tile_task_outs(DType::kBF16);

// Packed rows: [blocks of input features][tiles of rows][tiles of input features][kTileParts][kTileBytes].
struct PackedRows {
  char* data;  // aligned to 64
  int64_t num_row_tiles;

  char* block(int64_t feature, int64_t row_tile) const {
    return data + (feature / kTileBlockFeatures * num_row_tiles + row_tile) * kTileBlockBytes;
  }
  char* tile(int64_t feature, int64_t row_tile) const {
    return block(feature, row_tile) + feature % kTileBlockFeatures / kTileSteps * kTileParts * kTileBytes;
  }
};

struct TileLinear {
  // Packs a tile of rows: the up to kLinearTileRows rows of `part` (x, x_stride, num_rows, weight_dtype), of
  // them the kTileBlockFeatures input features from `feature` on; what lies beyond them is zero.
  void (*pack)(const LinearPart& part, const PackedRows& packed, int64_t row_tile, int64_t feature) = nullptr;
  // `part` with up to kTileMaxRows rows and max_tile_task_outs() output features, its x also given packed.
  // `scratch`: kTileScratchBytes for the time of the call, aligned to 64.
  void (*multiply)(const LinearPart& part, const PackedRows& packed, void* scratch) = nullptr;
};
TileLinear tile_linear_amx();

}  // namespace attend::kernels::cpu
