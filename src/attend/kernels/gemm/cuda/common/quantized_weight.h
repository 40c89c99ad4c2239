// A weight of any format (tensor/weight.h) as it crosses to the device.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/tensor/weight.h"

namespace attend::kernels::cuda {

struct QuantizedWeight {
  const void* data;  // elements or codes, rows contiguous
  const void* scales;
  const uint8_t* zeros;        // as scales; null: 8
  const int32_t* input_order;  // [in_features]; null: column i multiplies input i
  int32_t in_features;
  int32_t group_outs, group_ins;
  int32_t group_shift;    // group_ins is 2^group_shift, or all inputs are in one group; -1: neither
  int32_t scale_columns;  // of a row of scales
  WeightFormat format;
  Element element;        // of plain elements
  Element scale_element;  // of 8 bits and int4
};

// Of a checked weight on a GPU.
QuantizedWeight quantized_weight(const Weight& weight);

}  // namespace attend::kernels::cuda
