// Expert products for many rows on sm_90a (expert_tiles.cuh): parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kExpertTileRows = 128;     // of x
inline constexpr int kExpertTileWeights = 256;  // rows of W; if gated, half of them are gate, half up
inline constexpr int kExpertBoxRows = 128;      // rows of W per TMA copy

// Tiles have kExpertTileRows rows; product.out_features is a multiple of 8. The weight is plain, with gate
// rows before up rows, and is read through its tensor map.
struct ExpertTilesParams {
  CUtensorMap weight;  // [K-block, kExpertBoxRows]
  GroupedGemmParams product;
};
void launch_expert_tiles_bf16(const ExpertTilesParams& params, int num_ctas, void* stream);
void launch_expert_tiles_f16(const ExpertTilesParams& params, int num_ctas, void* stream);

// Expert products for many rows in mxfp4 on sm_90a (mxfp4_tiles.cu): parameters and launches.

inline constexpr int kMxFp4TileRows = 256;     // rows of x
inline constexpr int kMxFp4TileWeights = 128;  // rows of W; if gated, gate and up of half the outputs
inline constexpr int kMxFp4BoxRows = 64;       // rows of x per TMA copy
// Divides inputs, and outputs of a gated product.
inline constexpr int kMxFp4BlockInputs = 64;

// Rows of x are consecutive in the order of `product`, with their inputs in the order of mxfp4_tiles.cu. A
// gated product writes its outputs in that order too. Rows of gate and up may alternate. Tiles have
// kMxFp4TileRows rows; an expert's last tile has half or a quarter of that if this is enough. out_features is
// a multiple of 8.
struct MxFp4TilesParams {
  CUtensorMap x;  // [kMxFp4BlockInputs, kMxFp4BoxRows]
  GroupedGemmParams product;
};
void launch_mxfp4_tiles_bf16(const MxFp4TilesParams& params, int num_ctas, void* stream);

// Gathers rows of x for those products: to[row] = from[row_token[row]], each 64 inputs in their order.
struct GatherInputsParams {
  const void* from;
  const int32_t* row_token;
  void* to;
  int32_t num_rows, in_features;
};
void launch_gather_inputs(const GatherInputsParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm90
