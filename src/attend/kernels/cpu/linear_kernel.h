// The dense kernels of one instruction set, as the driver (linear.cc) sees them.
#pragma once

#include <cstdint>

#include "attend/kernels/cpu/isa.h"
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

// Both take f32, f16 and bf16 weights, and any sizes.
struct LinearKernel {
  void (*few_rows)(const LinearPart& part) = nullptr;
  void (*many_rows)(const LinearPart& part) = nullptr;
};

// Compiled for each instruction set.
LinearKernel linear_kernel_portable();
LinearKernel linear_kernel_avx2();
LinearKernel linear_kernel_avx512();

LinearKernel linear_kernel(Isa isa);

// num_outs in multiples of these leaves no remainder, whatever the instruction set and the rows.
inline constexpr int64_t kFewRowsOuts = 24;
inline constexpr int64_t kManyRowsOuts = 64;

}  // namespace attend::kernels::cpu
