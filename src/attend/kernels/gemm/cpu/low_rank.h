// Low-rank adapters on the CPU: two jobs of the thread team for all runs and products of a call. Runs of the
// same adapter are multiplied together.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/low_rank.h"

namespace attend::kernels::cpu {

// Arguments are those checked by kernels::add_low_rank.
void add_low_rank(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters,
                  Isa isa);

}  // namespace attend::kernels::cpu
