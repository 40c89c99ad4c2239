// MLA with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/device_plan.h"
#include "attend/kernels/attention/mla.h"

namespace attend::kernels::cuda::sm90 {

// `params`: of the arguments, which sm80's tiled kernel would take. Merges what several CTAs computed.
void mla(const MlaArgs& args, const AttentionParams& params, const DevicePlan& plan, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
