// Attention of many rows with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/common/head_dims.h"
#include "attend/kernels/attention/cuda/common/plan/device_plan.h"

namespace attend::kernels::cuda::sm90 {

// For what the candidates kSm90Prefill of choose.h take; `dims`: of their instance. `params`: of the
// arguments. The plan may be whole or streamed, not inline; work tiles are computed
// whole but where its CTAs divide keys.
void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan, HeadDims dims,
             Stream& stream);

}  // namespace attend::kernels::cuda::sm90
