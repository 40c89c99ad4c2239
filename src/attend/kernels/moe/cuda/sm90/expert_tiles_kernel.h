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

}  // namespace attend::kernels::cuda::sm90
