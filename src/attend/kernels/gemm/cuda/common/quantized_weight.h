// Device-side description of a weight of any format (tensor/weight.h).
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/tensor/weight.h"

namespace attend::kernels::cuda {

struct QuantizedWeight {
  const void* data;  // elements or quantized values, rows contiguous
  const void* scales;
  const uint8_t* zeros;        // same shape as scales; null: 8
  const int32_t* input_order;  // [in_features]; null: column i multiplies input i
  int32_t in_features;
  int32_t group_outs, group_ins;
  int32_t group_shift;    // log2(group_ins), or 31 if all inputs are in one group; -1: not a power of two
  int32_t scale_columns;  // scales per row
  WeightFormat format;
  Element element;        // element type of a plain weight
  Element scale_element;  // element type of the scales of 8-bit and int4 weights
};

// Converts a checked weight on a GPU.
QuantizedWeight quantized_weight(const Weight& weight);

}  // namespace attend::kernels::cuda
