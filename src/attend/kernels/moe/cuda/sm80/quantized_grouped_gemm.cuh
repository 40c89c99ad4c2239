// Quantized grouped GEMM: product of each expert for its rows, dequantized in registers (quantized_tile.cuh).
//
//   tile        16 or 64 rows of one expert x 32 outputs, or gate and up of 16 outputs
//   warps       8, all alike, like the quantized GEMM
//   registers   like the quantized GEMM
//   shared      9.2 KB
//   bytes       quantized W once per tile of rows
//   bound       reading W; with many rows dequantization, then tensor cores
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/sm80/quantized_tile.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/sm80/grouped_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

// Grid: one CTA per tile. CTAs of the same expert are neighbors.
template <class T, WeightFormat kFormat, int kTileRows, bool kGated>
__global__ void __launch_bounds__(kQuantizedThreads)
    quantized_grouped_gemm_kernel(const __grid_constant__ GroupedGemmParams params) {
  __shared__ QuantizedAccumulators shared;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const GroupedTile rows = find_grouped_tile<kQuantizedThreads, kTileRows>(params);
  if (rows.expert < 0) return;
  constexpr int kOutputs = kGated ? kPieceRows : kPieceOutputs;
  const int first_output = static_cast<int>(blockIdx.y) * kOutputs;
  QuantizedTile<T, kFormat, kTileRows / kRowsPerPiece> tile(
      params.x, params.x_stride, params.weight,
      [&](int i) {
        const int row = rows.first_row + i;
        if (row >= rows.end_row) return -1;
        return params.row_token != nullptr ? params.row_token[row] : row;
      },
      [&](int piece, int i) {
        const int output = first_output + i + (kGated ? 0 : piece * kPieceRows);
        return expert_weight_row(params, rows.expert, kGated ? piece : 0,
                                 min(output, params.out_features - 1));
      });
  tile.multiply();
  const auto put = [&](int tile_row, int tile_output, float sum, float up = 0.0f) {
    const int row = rows.first_row + tile_row, output = first_output + tile_output;
    if (row >= rows.end_row || output >= params.out_features) return;
    static_cast<T*>(params.out)[int64_t{row} * params.out_features + output] =
        T(expert_output(params, rows.expert, row, output, sum, up));
  };
  tile.template write<kGated>(shared, put);
}

template <class T, WeightFormat kFormat, int kTileRows, bool kGated>
void launch_quantized_expert_tiles(const GroupedGemmParams& params, void* stream) {
  constexpr int kOutputs = kGated ? kPieceRows : kPieceOutputs;
  launch_dependent<GroupedGemmParams>(
      quantized_grouped_gemm_kernel<T, kFormat, kTileRows, kGated>,
      dim3(static_cast<unsigned>(params.num_tiles),
           static_cast<unsigned>((params.out_features + kOutputs - 1) / kOutputs)),
      kQuantizedThreads, 0, stream, params, "moe_experts");
}

template <class T, WeightFormat kFormat>
void launch_quantized_experts(const GroupedGemmParams& params, int tile_rows, void* stream) {
  const bool few = tile_rows == kSmallTileRows;
  if (params.gated)
    few ? launch_quantized_expert_tiles<T, kFormat, kSmallTileRows, true>(params, stream)
        : launch_quantized_expert_tiles<T, kFormat, kLargeTileRows, true>(params, stream);
  else
    few ? launch_quantized_expert_tiles<T, kFormat, kSmallTileRows, false>(params, stream)
        : launch_quantized_expert_tiles<T, kFormat, kLargeTileRows, false>(params, stream);
}

template <class T>
void launch_quantized_grouped_gemm(const GroupedGemmParams& params, int tile_rows, void* stream) {
  switch (params.weight.format) {
    case WeightFormat::kPlain:
      return;
    case WeightFormat::kFp8:
      return launch_quantized_experts<T, WeightFormat::kFp8>(params, tile_rows, stream);
    case WeightFormat::kInt8:
      return launch_quantized_experts<T, WeightFormat::kInt8>(params, tile_rows, stream);
    case WeightFormat::kInt4:
      return launch_quantized_experts<T, WeightFormat::kInt4>(params, tile_rows, stream);
    case WeightFormat::kMxFp4:
      return launch_quantized_experts<T, WeightFormat::kMxFp4>(params, tile_rows, stream);
  }
}

}  // namespace attend::kernels::cuda::sm80
