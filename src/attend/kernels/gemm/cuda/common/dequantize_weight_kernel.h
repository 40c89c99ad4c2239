// Some rows of a quantized weight as elements of the activations' type.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda {

// to[i][input] = element of row first_row + i, rounded to the nearest of `element`; inputs in their own
// order. in_features is a multiple of 16, groups of inputs are of a multiple of 8; rows of codes begin at
// multiples of 8 bytes.
struct DequantizeWeightParams {
  QuantizedWeight weight;
  void* to;  // [num_rows, in_features] of f16 or bf16
  int32_t first_row, num_rows;
  Element element;
};
// Whatever comes behind may read `to` before it waits for the kernel before it.
void launch_dequantize_weight(const DequantizeWeightParams& params, void* stream);

// to[r][i] = x[r][order[i]], of 16 bits.
struct GatherInputsParams {
  const void* x;  // row r begins at element r * x_stride
  int64_t x_stride;
  const int32_t* order;  // [in_features]
  void* to;              // [num_rows, in_features]
  int32_t num_rows, in_features;
};
void launch_gather_inputs(const GatherInputsParams& params, void* stream);

}  // namespace attend::kernels::cuda
