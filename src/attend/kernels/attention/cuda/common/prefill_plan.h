// What plans know of prefill on sm_90a, whose kernels take plans with row tiles as tall as their work tiles.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kPrefillRows = 128;  // of a work tile: one row tile of the plan, or two lower ones
// With fewer work tiles for each SM, CTAs had better divide the keys.
inline constexpr int64_t kMinPrefillJobsOfSm = 1;

// Whether the CTAs of a plan that prefill takes divide the keys of work tiles. Else they take whole ones, one
// after another, also where the plan is streamed: it is so for lower tiles.
ATTEND_HOST_DEVICE constexpr bool divides_keys(const PlanView& plan) {
  return plan.streamed && plan.tile_rows == kPrefillRows;
}

}  // namespace attend::kernels::cuda::sm90
