// Attention and MLA on sm_90a, called by cuda/attention.cc.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/common/plan/device_plan.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"

namespace attend::kernels::cuda::sm90 {

// `params`: parameters of `args`, as sm80's tiled kernel has them. Also merges partial results.
void mla(const MlaArgs& args, const AttentionParams& params, const DevicePlan& plan, Stream& stream);

// Prefill with TMA and wgmma, for problems that kSm90Prefill of choose.h supports. `dims`: head dims of the
// instance. `params`: parameters of `args`. The plan is whole or streamed, not inline. Each CTA computes
// whole work tiles unless the plan's CTAs divide keys.
void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan, HeadDims dims,
             Stream& stream);

// Decode, verify and short extend with head dims of V above 256, for problems that kSm90WideDecode of
// choose.h supports. `params`: parameters of `args`. A separate kernel merges partial results.
void wide_decode(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan,
                 Stream& stream);

// Decode of a single request with 16-bit q and K/V, for problems that kSm90SingleRequestDecode of choose.h
// supports. Needs no separate merge. `dims`: head dims of the instance.
void single_request_decode(const AttentionParams& params, HeadDims dims, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
