// How attention leaves an SM divided between shared memory and L1.
#pragma once

#include <algorithm>

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/cuda/launch.cuh"

namespace attend::kernels::cuda {

// Bytes that an SM keeps of its memory as shared, one of kSharedCarveoutSizes, for CTAs of `shared_bytes`
// each. 0: as the driver has it. Less than kFastest was slower for the kernels behind, though these CTAs
// would fit (docs/kernels/gemm.md).
inline int shared_carveout(const PlanView& plan, int shared_bytes) {
  constexpr int kFastest = 196 << 10;
  return plan.num_ctas_per_sm > 0 ? std::max(shared_for(plan.num_ctas_per_sm, shared_bytes), kFastest) : 0;
}

}  // namespace attend::kernels::cuda
