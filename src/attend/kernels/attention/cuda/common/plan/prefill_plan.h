// What plans know of prefill on sm_90a, whose kernels take plans with row tiles as tall as their work tiles.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

inline constexpr int kPrefillRows = 128;  // of a work tile: one row tile of the plan, or two lower ones
// With fewer work tiles for each SM, CTAs had better divide the keys.
inline constexpr int64_t kMinPrefillJobsOfSm = 1;
// Rows of verify's work tiles, whose keys CTAs divide, and how many of its CTAs fit an SM.
inline constexpr int kVerifyRows = 64, kVerifyCtasOfSm = 2;

// Whether the CTAs of a plan that prefill takes divide the keys of work tiles. Else they take whole ones, one
// after another, also where the plan is streamed: it is so for lower tiles.
ATTEND_HOST_DEVICE constexpr bool divides_keys(const PlanView& plan) {
  return plan.streamed && plan.ctas_of_prefill;
}

// Whether prefill takes up to kVerifyRows rows. Where a work tile has many SMs, what starts sooner is faster;
// where it has one or none of its own, so are tiles of 32 rows.
constexpr bool takes_verify(int64_t num_rows, int64_t num_work_tiles, int64_t num_workers) {
  constexpr int64_t kMaxSmsOfWorkTile = 8;
  const int64_t least = num_work_tiles < num_workers ? 17 : 33;
  return num_rows >= least && num_work_tiles * kMaxSmsOfWorkTile >= num_workers;
}

// Whether prefill has work tiles of kVerifyRows for these values and K/V.
constexpr bool may_verify(int head_dim_v, bool fp8) { return head_dim_v <= 128 && !fp8; }

// Whether prefill's CTAs take whole work tiles or divide the keys of all: what plans and the choice of a
// kernel agree on.

// Work tiles of one request are about equally long. So of those wanted 1 in kMissingWorkTiles may be missing
// before dividing their keys, which costs a CTA a second start and a merge, is faster. 0: none may.
inline constexpr int64_t kMissingWorkTiles = 10;

// `wanted`: work tiles that do for requests of any lengths.
constexpr bool takes_whole_work_tiles(int64_t num_work_tiles, int64_t num_reqs, int64_t wanted) {
  const int64_t missing = num_reqs == 1 && kMissingWorkTiles > 0 ? wanted / kMissingWorkTiles : 0;
  return num_work_tiles >= wanted - missing;
}

}  // namespace attend::kernels::cuda
