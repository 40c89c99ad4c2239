// Elementwise kernels over one contiguous row for one instruction set, used by merge and store.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/tensor/dtype.h"

namespace attend::kernels::cpu {

struct RowKernels {
  // sum = (sum * sum_weight + row * row_weight) * factor. dtype: f32, f16, bf16.
  void (*blend)(float* sum, float sum_weight, const void* row, DType dtype, float row_weight, float factor,
                int n) = nullptr;
  // to = row * factor, rounded to `dtype`: f32, f16, bf16.
  void (*write)(const float* row, float factor, void* to, DType dtype, int n) = nullptr;
  // to = from / scale, rounded; any float dtypes.
  void (*store)(const void* from, DType from_dtype, void* to, DType to_dtype, float scale, int n) = nullptr;
};

RowKernels row_kernels_portable();
RowKernels row_kernels_avx2();
RowKernels row_kernels_avx512();

RowKernels row_kernels(Isa isa);

}  // namespace attend::kernels::cpu
