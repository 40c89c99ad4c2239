// out = x W^T with AMX matrix tiles: the interface for the driver (linear.cc).
//
// A tile instruction multiplies 16 output features x 32 input features by 32 input features x 16 rows in bf16
// and sums in f32, about 15 times as fast as f32 vectors. Values are split exactly into sums of bf16 parts
// (amx_parts.h): rows of x into three parts, weights into one (bf16), two (f16) or three (f32). Products of
// parts are exact. Omitted products are at most 2^-22 of the whole product, 2^-25 on average. The result
// therefore has f32 accuracy, at three (bf16), five (f16) or six (f32) multiplications. The instruction
// treats denormals as zero.
#pragma once

#include <cstdint>

#include "attend/kernels/gemm/cpu/linear_kernel.h"

namespace attend::kernels::cpu {

inline constexpr int kLinearTileRows = 16;  // rows of x in a tile
inline constexpr int kTileOuts = 16;        // output features in a tile
inline constexpr int kTileSteps = 32;       // input features in a tile
inline constexpr int kTileParts = 3;        // bf16 parts of a row of x
inline constexpr int64_t kTileBytes = 1024;
// Output features with weights that are split and multiplied together.
inline constexpr int kGroupOutTiles = 4, kGroupOuts = kGroupOutTiles * kTileOuts;
// Rows that are packed together and share each read of the weights. A block of input features of all rows,
// and the sums, stay in the L2 cache.
inline constexpr int kTileMaxRows = 256;
// Minimum number of rows for which tiles are faster than the skinny kernel: weights with fewer parts are
// split faster.
constexpr int tile_min_rows(DType weight_dtype) {
  return weight_dtype == DType::kF32 ? 13 : weight_dtype == DType::kF16 ? 10 : 5;
}

// Input features per pass over the rows of a task, so that two tiles of rows stay in the L1 cache.
inline constexpr int kTileBlockFeatures = 256;
inline constexpr int64_t kTileBlockBytes = kTileBlockFeatures / kTileSteps * kTileParts * kTileBytes;

// Maximum output features per task, which share each read of the packed rows. Weights with more parts have
// fewer.
constexpr int64_t max_tile_task_outs(DType weight_dtype) {
  const int64_t num_parts = weight_dtype == DType::kF32 ? 3 : weight_dtype == DType::kF16 ? 2 : 1;
  return 512 / num_parts / kGroupOuts * kGroupOuts;
}
// Scratch memory of a task: the parts of a block of input features of all its weights, and its sums.
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
  // Packs up to kLinearTileRows rows of `part` (x, x_stride, num_rows, weight_dtype), kTileBlockFeatures
  // input features from `feature`. Missing rows and features are zero.
  void (*pack)(const LinearPart& part, const PackedRows& packed, int64_t row_tile, int64_t feature) = nullptr;
  // Multiplies a part of up to kTileMaxRows rows and max_tile_task_outs() output features; `packed` holds its
  // x. `scratch`: kTileScratchBytes, aligned to 64, used during the call.
  void (*multiply)(const LinearPart& part, const PackedRows& packed, void* scratch) = nullptr;
};
TileLinear tile_linear_amx();

}  // namespace attend::kernels::cpu
