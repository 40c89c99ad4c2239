// Quantized GEMM: product with a weight that is read in quantized form.
#pragma once

#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda::sm80 {

// out = x weight^T (+ bias) (+ out).
struct QuantizedGemmParams {
  const void* x;  // row r starts at element r * x_stride
  int64_t x_stride;
  QuantizedWeight weight;  // without an input order
  DeviceVector bias;
  void* out;  // row r starts at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  bool accumulate;  // adds to the contents of out
  Element out_element;
};

// Rows of x per CTA, for small and large batches.
inline constexpr int kSmallQuantizedRows = 16, kLargeQuantizedRows = 64;
// Inputs of a K-block of 8-bit values, all in one scale group.
inline constexpr int kEightBitBlockInputs = 64;

// Tensor-core kernels; x has the function's dtype. Rows of x and of quantized values start at multiples of 16
// bytes. Groups of 8-bit values have a multiple of kEightBitBlockInputs inputs, or all inputs. Quantized
// values are exact operands; the sum of a group's products in float32 is multiplied by its scale and added. A
// row's bits depend neither on other rows nor on their number.
void launch_quantized_gemm_bf16(const QuantizedGemmParams& params, void* stream);
void launch_quantized_gemm_f16(const QuantizedGemmParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
