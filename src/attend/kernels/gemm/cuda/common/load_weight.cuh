// Loads single elements of a weight of any format as float32.
#pragma once

#include "attend/kernels/common/cuda/e8m0.cuh"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

namespace attend::kernels::cuda {

// Decodes e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
__device__ __forceinline__ float e2m1_to_float(uint32_t code) {
  const uint32_t exponent = code >> 1 & 3u, mantissa = code & 1u;
  const float magnitude = exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                                        : static_cast<float>((2u + mantissa) << exponent) * 0.25f;
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

// Returns the input group of `input`.
__device__ __forceinline__ int input_group(const QuantizedWeight& weight, int input) {
  return weight.group_shift >= 0 ? input >> weight.group_shift : input / weight.group_ins;
}

// Returns the index of a row's first scale.
__device__ __forceinline__ int64_t row_scales_begin(const QuantizedWeight& weight, int64_t row) {
  return (weight.group_outs == 1 ? row : row / weight.group_outs) * weight.scale_columns;
}

// Loads the scale at index `at` exactly.
__device__ __forceinline__ float load_scale(const QuantizedWeight& weight, int64_t at) {
  if (weight.format == WeightFormat::kMxFp4)
    return e8m0_to_float(static_cast<const uint8_t*>(weight.scales)[at]);
  return load_element(weight.scales, at, weight.scale_element);
}

__device__ __forceinline__ int load_zero(const QuantizedWeight& weight, int64_t at) {
  constexpr int kMiddle = 8;
  return weight.zeros != nullptr ? weight.zeros[at] : kMiddle;
}

// Loads a 4-bit quantized value.
__device__ __forceinline__ uint32_t load_quantized(const QuantizedWeight& weight, int64_t row, int column) {
  const auto* const codes = static_cast<const uint8_t*>(weight.data) + row * (weight.in_features / 2);
  return codes[column / 2] >> (column % 2 * 4) & 15u;
}

// Loads the element of a row and column. The product with a scale is rounded to float32.
__device__ inline float load_weight(const QuantizedWeight& weight, int64_t row, int column) {
  const int64_t at = row * weight.in_features + column;
  if (weight.format == WeightFormat::kPlain) return load_element(weight.data, at, weight.element);
  const int64_t group = row_scales_begin(weight, row) + input_group(weight, column);
  const float scale = load_scale(weight, group);
  if (weight.format == WeightFormat::kFp8) return load_element(weight.data, at, Element::kF8E4M3) * scale;
  if (weight.format == WeightFormat::kInt8)
    return static_cast<float>(static_cast<const int8_t*>(weight.data)[at]) * scale;
  const uint32_t code = load_quantized(weight, row, column);
  if (weight.format == WeightFormat::kMxFp4) return e2m1_to_float(code) * scale;
  return static_cast<float>(static_cast<int>(code) - load_zero(weight, group)) * scale;
}

}  // namespace attend::kernels::cuda
