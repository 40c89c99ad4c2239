// Quantized GEMM of a linear layer: quantized_tile.cuh for one weight.
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/sm80/quantized_tile.cuh"

namespace attend::kernels::cuda::sm80 {

// CTAs with the same rows of W are neighbors, so that W is read from memory once.
template <class T, WeightFormat kFormat, int kTileRows>
__global__ void __launch_bounds__(kQuantizedThreads)
    quantized_gemm_kernel(const __grid_constant__ QuantizedGemmParams params) {
  __shared__ QuantizedAccumulators shared;
  // Attention may read the cache early after a product of q, k and v, so this kernel waits before the next
  // one starts.
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int first_row = static_cast<int>(blockIdx.x) * kTileRows,
            first_output = static_cast<int>(blockIdx.y) * kPieceOutputs;
  QuantizedTile<T, kFormat, kTileRows / kRowsPerPiece> tile(
      params.x, params.x_stride, params.weight,
      [&](int row) { return first_row + row < params.num_rows ? first_row + row : -1; },
      [&](int piece, int row) {
        return int64_t{min(first_output + piece * kPieceRows + row, params.out_features - 1)};
      });
  tile.multiply();
  tile.template write<false>(shared, [&](int tile_row, int tile_output, float value) {
    const int row = first_row + tile_row, output = first_output + tile_output;
    if (row >= params.num_rows || output >= params.out_features) return;
    const int64_t to = row * params.out_stride + output;
    if (params.bias.data != nullptr) value += load_element(params.bias.data, output, params.bias.element);
    if (params.accumulate) value += load_element(params.out, to, params.out_element);
    store_element(params.out, to, params.out_element, value);
  });
}

template <class T, WeightFormat kFormat, int kTileRows>
void launch_quantized_tiles(const QuantizedGemmParams& params, void* stream) {
  const auto tiles = [](int count, int size) { return static_cast<unsigned>((count + size - 1) / size); };
  launch_dependent<QuantizedGemmParams>(
      quantized_gemm_kernel<T, kFormat, kTileRows>,
      dim3(tiles(params.num_rows, kTileRows), tiles(params.out_features, kPieceOutputs)), kQuantizedThreads,
      0, stream, params, "linear");
}

template <class T, WeightFormat kFormat>
void launch_quantized_format(const QuantizedGemmParams& params, void* stream) {
  if (params.num_rows <= kSmallQuantizedRows)
    launch_quantized_tiles<T, kFormat, kSmallQuantizedRows>(params, stream);
  else
    launch_quantized_tiles<T, kFormat, kLargeQuantizedRows>(params, stream);
}

template <class T>
void launch_quantized_gemm(const QuantizedGemmParams& params, void* stream) {
  switch (params.weight.format) {
    case WeightFormat::kPlain:
      return;
    case WeightFormat::kFp8:
      return launch_quantized_format<T, WeightFormat::kFp8>(params, stream);
    case WeightFormat::kInt8:
      return launch_quantized_format<T, WeightFormat::kInt8>(params, stream);
    case WeightFormat::kInt4:
      return launch_quantized_format<T, WeightFormat::kInt4>(params, stream);
    case WeightFormat::kMxFp4:
      return launch_quantized_format<T, WeightFormat::kMxFp4>(params, stream);
  }
}

}  // namespace attend::kernels::cuda::sm80
