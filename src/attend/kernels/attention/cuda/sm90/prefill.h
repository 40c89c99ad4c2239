// Attention of many rows with TMA and wgmma on GPUs of compute capability 9.0.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/common/device_plan.h"

namespace attend::kernels::cuda::sm90 {

// Whether prefill() is the kernel for these arguments, of those that the tiled kernels of sm80 take: on GPUs
// of compute capability 9.0, in builds with code for sm_90a, for dtypes and head dims of an instance (K/V of
// the dtype of q, or of fp8 with head dims up to 128), more than 64 rows a request, no fixed splits, without
// a tree mask. And where there is a job for every CTA that the plan is for: with fewer, CTAs had better share
// keys.
bool takes(const AttentionArgs& args, const DevicePlan& plan, const Stream& stream);

// `params`: of the arguments. The plan may be whole or streamed; jobs are computed whole.
void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan,
             Stream& stream);

}  // namespace attend::kernels::cuda::sm90
