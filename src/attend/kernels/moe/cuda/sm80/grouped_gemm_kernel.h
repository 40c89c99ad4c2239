// Products of rows of all experts on mma.sync (grouped_gemm.cuh, quantized_grouped_gemm.cuh): their launches.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda::sm80 {

// On tensor cores, of the function's type, with a plain weight of it: x and weight begin at multiples of 16
// bytes, and in_features is a multiple of 8. tile_rows is kSmallTileRows or kLargeTileRows. The bits of a row
// depend neither on the rows beside it nor on the tile.
void launch_grouped_gemm_bf16(const GroupedGemmParams& params, int tile_rows, void* stream);
void launch_grouped_gemm_f16(const GroupedGemmParams& params, int tile_rows, void* stream);

// The same with a quantized weight without an order of inputs: rows of x and of codes begin at multiples of
// 16 bytes, and groups are those of launch_quantized_gemm (quantized_gemm_kernel.h).
void launch_quantized_grouped_gemm_bf16(const GroupedGemmParams& params, int tile_rows, void* stream);
void launch_quantized_grouped_gemm_f16(const GroupedGemmParams& params, int tile_rows, void* stream);

}  // namespace attend::kernels::cuda::sm80
