// Attention on sm_90a, as cuda/attention.cc calls it.
#pragma once

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/cuda/common/plan/device_plan.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"

namespace attend::kernels::cuda::sm90 {

// `params`: of the arguments, which sm80's tiled kernel would take. Merges what several CTAs computed.
void mla(const MlaArgs& args, const AttentionParams& params, const DevicePlan& plan, Stream& stream);

// Attention of many rows with TMA and wgmma, for what the candidates kSm90Prefill of choose.h take; `dims`:
// of their instance. `params`: of the arguments. The plan may be whole or streamed, not inline; work tiles
// are computed whole but where its CTAs divide keys.
void prefill(const AttentionArgs& args, const AttentionParams& params, const DevicePlan& plan, HeadDims dims,
             Stream& stream);

// Decode of a single request of 16-bit q and K/V, for what the candidates kSm90SingleRequestDecode of
// choose.h take, which no merge follows; `dims`: of their instance.
void single_request_decode(const AttentionParams& params, HeadDims dims, Stream& stream);

}  // namespace attend::kernels::cuda::sm90
