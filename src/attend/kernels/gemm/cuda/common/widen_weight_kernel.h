// Some rows of a quantised weight as elements of the activations' type, and what goes with a product by them.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantised_weight.h"

namespace attend::kernels::cuda {

// to[i][input] = element (or, without `scaled`, code) of row first_row + i, rounded to the nearest of
// `element`; inputs in their own order. in_features is a multiple of 16.
struct WidenWeightParams {
  QuantisedWeight weight;
  void* to;  // [num_rows, in_features] of f16 or bf16
  int32_t first_row, num_rows;
  Element element;
  bool scaled;
};
// Whatever comes behind may read `to` before it waits for the kernel before it.
void launch_widen_weight(const WidenWeightParams& params, void* stream);

// out[r][i] (+)= sums[r][i] * scale of row first_row + i of the weight + bias[first_row + i].
struct ScaleSumsParams {
  const float* sums;  // [num_rows, num_outs]
  QuantisedWeight weight;
  DeviceVector bias;
  void* out;  // column 0 is that of row first_row; row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, num_outs, first_row;
  bool accumulate;
  Element out_element;
};
void launch_scale_sums(const ScaleSumsParams& params, void* stream);

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
