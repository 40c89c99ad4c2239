// Low-rank adapters on the CPU: a job of the thread team for each half, with all runs and products of a call.
// Runs of the same adapter are multiplied together.
#pragma once

#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/gemm/low_rank.h"

namespace attend::kernels::cpu {

// Arguments are those checked by kernels::shrink_low_rank and kernels::expand_low_rank.
void shrink_low_rank(const TensorView& x, View<const LowRankProduct> products, const AdapterBatch& adapters,
                     Isa isa);
void expand_low_rank(View<const LowRankProduct> products, const AdapterBatch& adapters, Isa isa);

}  // namespace attend::kernels::cpu
