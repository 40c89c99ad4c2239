// The dense kernels of one instruction set, as the driver (linear.cc) sees them.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {

// A part of out = x W^T + b: some rows of x, some rows of W.
struct LinearPart {
  const float* x = nullptr;  // [num_rows, in_features]
  int64_t x_stride = 0;
  const void* weight = nullptr;  // [num_outs, in_features], contiguous
  DType weight_dtype = DType::kF32;
  const void* bias = nullptr;  // [num_outs]; null: none
  DType bias_dtype = DType::kF32;
  float* out = nullptr;  // [num_rows, num_outs]
  int64_t out_stride = 0;
  int64_t num_rows = 0, num_outs = 0, in_features = 0;
};

// Both take f32, f16 and bf16 weights, and any number of rows.
struct LinearKernel {
  void (*few_rows)(const LinearPart& part) = nullptr;
  void (*many_rows)(const LinearPart& part) = nullptr;  // num_outs up to kManyRowsOuts
};

// Compiled for each instruction set.
LinearKernel linear_kernel_portable();
LinearKernel linear_kernel_avx2();
LinearKernel linear_kernel_avx512();

LinearKernel linear_kernel(Isa isa);

// Up to here weights are multiplied as they stream by; above, they are packed first, which pays when they are
// used often. (Where the two take equal time.)
inline constexpr int kFewRows = 32;
// A multiple of the output features of every tile of few rows: parts of it leave no remainder.
inline constexpr int64_t kFewRowsOuts = 24;
// A multiple of those of every panel.
inline constexpr int64_t kManyRowsOuts = 128;

}  // namespace attend::kernels::cpu
