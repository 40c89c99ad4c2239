// Quantized GEMM: the product with a quantized weight, read in its own bits.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda::sm80 {

// out = x weight^T (+ bias) (+ out).
struct QuantizedGemmParams {
  const void* x;  // row r begins at element r * x_stride
  int64_t x_stride;
  QuantizedWeight weight;  // without an order of inputs
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  bool accumulate;  // what out holds is added
  Element out_element;
};

// Rows of x of a CTA: few where there are few.
inline constexpr int kSmallQuantizedRows = 16, kLargeQuantizedRows = 64;
// Inputs of a K-block of 8 bits, all of one group of scales.
inline constexpr int kEightBitBlockInputs = 64;

// On tensor cores; x is of the function's type. Rows of x and of codes begin at multiples of 16 bytes; groups
// of 8 bits are of a multiple of kEightBitBlockInputs inputs, or of all. Codes are exact factors; sums of a
// group's products, in float32, are multiplied by its scale and added up. A row's bits depend on the weight
// alone: neither on the other rows nor on their number.
void launch_quantized_gemm_bf16(const QuantizedGemmParams& params, void* stream);
void launch_quantized_gemm_f16(const QuantizedGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
