// Dense layers of many rows on sm_90a whose sums do not depend on the number of rows.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda::sm90 {

// out = x weight^T (+ bias) (+ out).
struct RowTilesParams {
  CUtensorMap x, weight;  // [chunk, rows], boxes of a tile's rows and of its features
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_chunks;  // of 64 inputs
  bool accumulate;     // what out holds is added
  bool out_paired;     // pairs of features begin at multiples of 4 bytes
  Element out_element;
};

// Tiles of the output: kLargeTile where there are enough of them for the GPU.
struct RowTileShape {
  int rows, features;
};
inline constexpr RowTileShape kLargeTile{192, 128}, kSmallTile{128, 64};

// Throws Error(kDevice) when the launch fails.
void launch_row_tiles_bf16(const RowTilesParams& params, const RowTileShape& shape, void* stream);
void launch_row_tiles_f16(const RowTilesParams& params, const RowTileShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
