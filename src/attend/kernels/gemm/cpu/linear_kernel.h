// The dense kernels of one instruction set, as the driver (linear.cc) sees them.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/weight.h"

namespace attend::kernels::cpu {

// What weights have beside their data (tensor/weight.h): of all output features, since the first one of a
// part may stand within a group.
struct WeightGroups {
  WeightFormat format = WeightFormat::kPlain;
  DType scale_dtype = DType::kF32;
  const void* scales = nullptr;          // [groups of outs, num_groups]
  const uint8_t* zeros = nullptr;        // as scales
  const int32_t* input_order = nullptr;  // [in_features]
  int64_t num_groups = 0;                // of an output feature
  int64_t group_outs = 0, group_ins = 0;
  int64_t first_out = 0;  // of the part
};

// A part of out = x W^T + b: some rows of x, some rows of W.
struct LinearPart {
  const float* x = nullptr;  // [num_rows, in_features]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // [num_outs, in_features], contiguous
  DType weight_dtype = DType::kF32;
  WeightGroups groups = {};
  const void* bias = nullptr;  // [num_outs]; null: none
  DType bias_dtype = DType::kF32;
  float* out = nullptr;  // [num_rows, num_outs]
  int64_t out_stride = 0;
  int64_t num_rows = 0, num_outs = 0, in_features = 0;
};

// A part's weights: all output features of `weight`, and those from a later one on.
LinearPart with_weight(LinearPart part, const Weight& weight);
void skip_outs(LinearPart& part, int64_t num_outs);
// Bytes of an output feature's data.
int64_t weight_row_bytes(const LinearPart& part);

// Both take every format.
struct LinearKernel {
  void (*skinny)(const LinearPart& part) = nullptr;  // any number of rows
  // num_rows and num_outs up to those below; `tiles`: so many floats of the task's own. Does not take weights
  // whose inputs stand in another order.
  void (*packed)(const LinearPart& part, float* tiles) = nullptr;
  int64_t num_tile_floats = 0;
  int64_t max_packed_rows = 0;
  int64_t max_packed_outs = 0;  // a multiple of the output features of every panel
};

// Compiled for each instruction set.
LinearKernel linear_kernel_portable();
LinearKernel linear_kernel_avx2();
LinearKernel linear_kernel_avx512();

LinearKernel linear_kernel(Isa isa);

// Up to here weights are multiplied as they stream by; above, they are packed first, which pays when they are
// used often. (Where the two take equal time.)
inline constexpr int kMaxSkinnyRows = 32;
// A multiple of the output features of every tile of few rows: parts of it leave no remainder.
inline constexpr int64_t kSkinnyOuts = 24;

}  // namespace attend::kernels::cpu
