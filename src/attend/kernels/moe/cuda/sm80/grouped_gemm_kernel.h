// Launches of the grouped GEMMs on mma.sync (grouped_gemm.cuh, quantized_grouped_gemm.cuh).
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm80 {

// Tensor-core kernels with a plain weight, all in the function's dtype: x and weight start at multiples of 16
// bytes, and in_features is a multiple of 8. tile_rows is kSmallTileRows or kLargeTileRows. The bits of a row
// depend neither on neighboring rows nor on the tile.
void launch_grouped_gemm_bf16(const GroupedGemmParams& params, int tile_rows, void* stream);
void launch_grouped_gemm_f16(const GroupedGemmParams& params, int tile_rows, void* stream);

// The same with a quantized weight without an input order. Rows of x and of quantized values start at
// multiples of 16 bytes; groups as in launch_quantized_gemm (quantized_gemm_kernel.h).
void launch_quantized_grouped_gemm_bf16(const GroupedGemmParams& params, int tile_rows, void* stream);
void launch_quantized_grouped_gemm_f16(const GroupedGemmParams& params, int tile_rows, void* stream);

}  // namespace attend::kernels::cuda::sm80
