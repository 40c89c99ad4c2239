// The experts' products of many rows on sm_90a (expert_tiles.cuh): what crosses to the device, and the
// launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kExpertTileRows = 128;     // of x
inline constexpr int kExpertTileWeights = 256;  // rows of W; gated: half of them gate's, half up's
inline constexpr int kExpertBoxRows = 128;      // of W, of one copy

// Rows are in tiles of kExpertTileRows; product.out_features are a multiple of 8. The weight is plain, with
// gate's rows before up's, and read by its map.
struct ExpertTilesParams {
  CUtensorMap weight;  // [K-block, kExpertBoxRows]
  GroupedGemmParams product;
};
void launch_expert_tiles_bf16(const ExpertTilesParams& params, int num_ctas, void* stream);
void launch_expert_tiles_f16(const ExpertTilesParams& params, int num_ctas, void* stream);

// The experts' products of many rows in mxfp4 on sm_90a (mxfp4_tiles.cu): what crosses to the device, and
// the launches.

inline constexpr int kMxFp4TileRows = 256;     // rows of x
inline constexpr int kMxFp4TileWeights = 128;  // rows of W; gated: gate and up of half as many outputs
inline constexpr int kMxFp4BoxRows = 64;       // rows of x of one copy
// Inputs, and outputs of a gated product, are multiples of it.
inline constexpr int kMxFp4BlockInputs = 64;

// Rows of x follow one another as `product` has them, their inputs in the order of mxfp4_tiles.cu, in which
// a gated product writes its outputs too; rows of gate and up may alternate. Tiles have kMxFp4TileRows rows;
// of an expert's last ones a half or a quarter of that, where it is enough. out_features are a multiple of 8.
struct MxFp4TilesParams {
  CUtensorMap x;  // [kMxFp4BlockInputs, kMxFp4BoxRows]
  GroupedGemmParams product;
};
void launch_mxfp4_tiles_bf16(const MxFp4TilesParams& params, int num_ctas, void* stream);

// Rows of x as those products take them: to[row] = from[row_token[row]], each 64 inputs in their order.
struct GatherInputsParams {
  const void* from;
  const int32_t* row_token;
  void* to;
  int32_t num_rows, in_features;
};
void launch_gather_inputs(const GatherInputsParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm90
