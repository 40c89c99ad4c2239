// Division of an SM's memory between shared memory and L1 in attention kernels.
#pragma once

#include <algorithm>

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/cuda/launch.cuh"

namespace attend::kernels::cuda {

// Returns the shared-memory carveout in bytes, one of kSharedCarveoutSizes, for CTAs of `shared_bytes` each.
// 0: driver default. Carveouts below kFastest slowed down the following kernels, although these CTAs would
// fit (docs/kernels/gemm.md).
inline int shared_carveout(const PlanView& plan, int shared_bytes) {
  constexpr int kFastest = 196 << 10;
  return plan.num_ctas_per_sm > 0 ? std::max(shared_for(plan.num_ctas_per_sm, shared_bytes), kFastest) : 0;
}

}  // namespace attend::kernels::cuda
