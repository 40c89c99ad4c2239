// Plan properties of prefill on sm_90a, which requires plans with row tiles as tall as its work tiles.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

// Rows of a work tile: one row tile of the plan, or two shorter ones.
inline constexpr int kPrefillRows = 128;
// Rows of verification's work tiles, with keys divided among CTAs, and the number of its CTAs per SM.
inline constexpr int kVerifyRows = 64, kVerifyCtasPerSm = 2;

// Returns true if the CTAs of a prefill plan divide the keys of work tiles. Otherwise they compute whole work
// tiles one after another, even if the plan is streamed: plans for shorter tiles are streamed.
ATTEND_HOST_DEVICE constexpr bool divides_keys(const PlanView& plan) {
  return plan.streamed && plan.is_prefill_plan;
}

// Returns true if prefill has work tiles of kVerifyRows for these values and K/V.
constexpr bool may_verify(int head_dim_v, bool fp8) { return head_dim_v <= 128 && !fp8; }

}  // namespace attend::kernels::cuda
