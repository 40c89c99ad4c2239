// Scaled latent rows (scaled_rows.h) on the CPU, one at a time.
#pragma once

#include <cstddef>

#include "attend/kernels/common/cpu/row_kernels.h"

namespace attend::kernels::cpu {

// `values`: [kScaledRow.width()].
void write_scaled_row(const RowKernels& kernels, const float* values, std::byte* row);
// to = row * factor, rounded to `dtype`: f32, f16, bf16.
void read_scaled_row(const RowKernels& kernels, const std::byte* row, float factor, void* to, DType dtype);

}  // namespace attend::kernels::cpu
