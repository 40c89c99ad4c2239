// MLA with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/attention/cuda/common/device_plan.h"
#include "attend/kernels/attention/mla.h"

namespace attend::kernels::cuda::sm90 {

// Whether mla() is the kernel for what sm80's tiled kernel takes: on GPUs of compute capability 9.0, in
// builds with code for sm_90a.
bool takes_mla(Device device);

// `params`: of the arguments, which sm80's tiled kernel would take. Merges what several CTAs computed.
void mla(const MlaArgs& args, const AttentionParams& params, const DevicePlan& plan, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
