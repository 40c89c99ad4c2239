// Products of experts of many rows on sm_90a.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda::sm90 {

// As launch_grouped_gemm_bf16() and _f16(), with a plain weight whose rows of gate and up do not alternate,
// or one in mxfp4 and x in bf16, and tiles of kExpertTilesRows rows; out_features are a multiple of 8. Bits
// of a row are not those of the other tiles. Throws Error(kUnsupported) in a build without code for sm_90a.
inline constexpr int kExpertTilesRows = 128;
void expert_tiles(const GroupedGemmParams& product, const TensorView& weight, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
