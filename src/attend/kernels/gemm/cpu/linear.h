// Dense layers on the CPU. Weights are converted to f32 as they are read, or split into bf16 parts for AMX
// tiles (linear_tiles.h); products and sums are f32.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/linear.h"

namespace attend::kernels::cpu {

// Arguments as kernels::linear checks them. A row's bits depend on its own values, and on the algorithm,
// which the number of rows chooses unless args.batch_invariant; not on the number of threads.
//
// records: the choice of the kernel is (kernel_choices.h); else the caller's is, of which this is a part.
void linear(const LinearArgs& args, Isa isa, bool records = true);

// As kernels::linear_workspace_bytes, for one instruction set.
size_t linear_workspace_bytes(int64_t max_rows, int64_t max_in_features, Isa isa);

}  // namespace attend::kernels::cpu
