// Dense layers of any number of rows whose sums do not depend on that number.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

// out = x weight^T (+ bias) (+ out).
struct RowTilesParams {
  const void* x;  // row r begins at element r * x_stride
  const void* weight;
  int64_t x_stride;
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;
  bool accumulate;  // what out holds is added
  Element out_element;
};

// On tensor cores: bit for bit what few_rows_kernel.h computes of the same row. x and weight are of the
// function's type, their rows begin at multiples of 16 bytes, and in_features is a multiple of 8.
void launch_row_tiles_bf16(const RowTilesParams& params, void* stream);
void launch_row_tiles_f16(const RowTilesParams& params, void* stream);

// Any layout, x and weight of `element`: every output is summed in float32 by one thread, one input after
// another.
void launch_plain_product(const RowTilesParams& params, Element element, void* stream);

}  // namespace attend::kernels::cuda
