// Dequantizes rows of a quantized weight to the dtype of the activations.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda {

// to[i][input] = element of row first_row + i, rounded to the nearest `element`, with inputs in the weight's
// original order. in_features is a multiple of 16, groups of inputs are multiples of 8, and rows of quantized
// values start at multiples of 8 bytes.
struct DequantizeWeightParams {
  QuantizedWeight weight;
  void* to;  // [num_rows, in_features], f16 or bf16
  int32_t first_row, num_rows;
  Element element;
};
// Later kernels may read `to` before their grid dependency resolves.
void launch_dequantize_weight(const DequantizeWeightParams& params, void* stream);

// to[r][i] = x[r][order[i]], 16-bit elements.
struct GatherInputsParams {
  const void* x;  // row r starts at element r * x_stride
  int64_t x_stride;
  const int32_t* order;  // [in_features]
  void* to;              // [num_rows, in_features]
  int32_t num_rows, in_features;
};
void launch_gather_inputs(const GatherInputsParams& params, void* stream);

}  // namespace attend::kernels::cuda
