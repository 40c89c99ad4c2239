// Products of experts with many rows on sm_90a.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels::cuda::sm90 {

// Like launch_grouped_gemm_bf16() and _f16(), with a plain weight in which rows of gate and up do not
// alternate, and tiles of kExpertTilesRows rows; out_features is a multiple of 8. Bits of a row differ from
// those of the other tiles. Throws Error(kUnsupported) in a build without code for sm_90a.
inline constexpr int kExpertTilesRows = 128;
void expert_tiles(const GroupedGemmParams& product, const TensorView& weight, Stream& stream);

// Overload for a weight in mxfp4 and x in bf16; rows of gate and up may alternate. Rows of x are those of the
// product (no row_token), as written by mxfp4_inputs() or by a gated product of this function. in_features is
// a multiple of kMxFp4TilesInputs, as is out_features of a gated product. The kernel finds tiles of 256, 128
// or 64 rows itself: product.first_tile and num_tiles are not read.
inline constexpr int kMxFp4TilesInputs = 64;
void mxfp4_tiles(const GroupedGemmParams& product, int64_t num_rows, Stream& stream);
// Writes row row_token[r] of `from`, [.., in_features] in bf16, to row r of `to`, with each 64 inputs in the
// order in which mxfp4_tiles() reads them.
void mxfp4_inputs(const void* from, const int32_t* row_token, void* to, int64_t num_rows, int64_t in_features,
                  Stream& stream);

}  // namespace attend::kernels::cuda::sm90
