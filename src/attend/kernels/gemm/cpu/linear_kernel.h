// Interface between the driver (linear.cc) and the linear kernels of one instruction set.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/weight.h"

namespace attend::kernels::cpu {

// Scales and order of a weight (tensor/weight.h), for all output features: the first output feature of a part
// may be inside a group.
struct WeightGroups {
  WeightFormat format = WeightFormat::kPlain;
  BlockFormat block_format = BlockFormat::kQ4_0;
  DType scale_dtype = DType::kF32;
  const void* scales = nullptr;          // [groups of outs, num_groups]
  const uint8_t* zeros = nullptr;        // same shape as scales
  const int32_t* input_order = nullptr;  // [in_features]
  int64_t num_groups = 0;                // per output feature
  int64_t group_outs = 0, group_ins = 0;
  int64_t first_out = 0;  // first output feature of the part
};

struct Int8Run;  // int8/int8_linear.h

// A part of out = x W^T + b: some rows of x and some rows of W.
struct LinearPart {
  const float* x = nullptr;  // [num_rows, in_features]
  int64_t x_stride = 0;
  // x in int8 (int8/int8_linear.h): int8_row_runs(in_features) runs per row; null: not quantized.
  const Int8Run* int8_x = nullptr;
  int64_t int8_stride_bytes = 0;
  const void* weight = nullptr;  // [num_outs, in_features], contiguous
  DType weight_dtype = DType::kF32;
  WeightGroups groups = {};
  const void* bias = nullptr;  // [num_outs], or null
  DType bias_dtype = DType::kF32;
  float* out = nullptr;  // [num_rows, num_outs]
  int64_t out_stride = 0;
  int64_t num_rows = 0, num_outs = 0, in_features = 0;
};

// with_weight sets all output features of `weight`; skip_outs drops the first num_outs of them.
LinearPart with_weight(LinearPart part, const Weight& weight);
void skip_outs(LinearPart& part, int64_t num_outs);
// Bytes per output feature of the weight's data.
int64_t weight_row_bytes(const LinearPart& part);

// Both functions support every weight format.
struct LinearKernel {
  void (*skinny)(const LinearPart& part) = nullptr;  // any number of rows
  // Limits: num_rows <= max_packed_rows and num_outs <= max_packed_outs. `tiles`: num_tile_floats floats
  // owned by the task. Weights with an input order are not supported.
  void (*packed)(const LinearPart& part, float* tiles) = nullptr;
  int64_t num_tile_floats = 0;
  int64_t max_packed_rows = 0;
  int64_t max_packed_outs = 0;  // multiple of every panel's output features
};

// One implementation per instruction set.
LinearKernel linear_kernel_portable();
LinearKernel linear_kernel_avx2();
LinearKernel linear_kernel_avx512();

LinearKernel linear_kernel(Isa isa);

// Up to this number of rows, weights are multiplied as they are read. Above it they are packed first, which
// pays off when they are reused often. Both take the same time at this number.
inline constexpr int kMaxSkinnyRows = 32;
// Output features per task with few rows: a multiple of every tile's output features, so that tasks leave no
// remainder.
inline constexpr int64_t kSkinnyOuts = 24;

}  // namespace attend::kernels::cpu
