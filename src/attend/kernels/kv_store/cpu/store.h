// CPU implementation of the store family.
#pragma once

#include <cstddef>

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/common/cpu/row_kernels.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::cpu {

// Like kernels::store_kv and kernels::store_mla, for an instruction set that the caller has checked.
// Arguments must have been checked.
void store_kv(const StoreKvArgs& args, Isa isa);
void store_mla(const StoreMlaArgs& args, Isa isa);

// Scaled latent rows (selected_rows.h) on the CPU, one at a time.

// `values`: [kScaledRow.width()].
void write_scaled_row(const RowKernels& kernels, const float* values, std::byte* row);
// to = row * factor, rounded to `dtype`: f32, f16, bf16.
void read_scaled_row(const RowKernels& kernels, const std::byte* row, float factor, void* to, DType dtype);

}  // namespace attend::kernels::cpu
