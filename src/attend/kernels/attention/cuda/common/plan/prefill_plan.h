// What plans know of prefill on sm_90a, whose kernels take plans with row tiles as tall as their work tiles.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

inline constexpr int kPrefillRows = 128;  // of a work tile: one row tile of the plan, or two lower ones
// Rows of verify's work tiles, whose keys CTAs divide, and how many of its CTAs fit an SM.
inline constexpr int kVerifyRows = 64, kVerifyCtasPerSm = 2;

// Whether the CTAs of a plan that prefill takes divide the keys of work tiles. Else they take whole ones, one
// after another, also where the plan is streamed: it is so for lower tiles.
ATTEND_HOST_DEVICE constexpr bool divides_keys(const PlanView& plan) {
  return plan.streamed && plan.is_prefill_plan;
}

// Whether prefill has work tiles of kVerifyRows for these values and K/V.
constexpr bool may_verify(int head_dim_v, bool fp8) { return head_dim_v <= 128 && !fp8; }

}  // namespace attend::kernels::cuda
