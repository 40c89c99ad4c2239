// Prefill on sm_90a (prefill.cuh): kernel parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/plan/paged_row_strides.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_shape.h"

namespace attend::kernels::cuda::sm90 {

// Of 16-bit K and V. Head dims of which consumers have a third warpgroup leave each the registers of 96 keys.
constexpr bool has_three_consumers(int head_dim_qk) { return head_dim_qk <= 96; }
constexpr int prefill_keys(int head_dim_qk) {
  return has_three_consumers(head_dim_qk) ? 96 : head_dim_qk > 192 ? 64 : 128;
}
// Of work tiles of up to kVerifyRows rows. With more bytes under way, memory serves SMs of some GPCs so much
// sooner that others end 60 % later.
inline constexpr int kVerifyKeys = 32;
// The most rows of a TMA box: KV tiles begin at multiples of it. Of fp8 all tiles have 128 keys.
constexpr int kMaxFp8BoxRows = 64;
constexpr int max_box_rows(int head_dim_qk, bool verifies) {
  return !verifies && prefill_keys(head_dim_qk) % 64 == 0 ? 64 : 32;
}
// Returns true if a plan is for verification.
constexpr bool verifies(const PlanView& plan) { return divides_keys(plan) && plan.tile_rows <= kVerifyRows; }

struct PrefillParams {
  AttentionParams attention;
  // Boxes of [128 bytes of a row, 1 head, box_rows slots of a page, 1 page] of the cache, or where K/V are
  // contiguous of [128 bytes, 1 head, 1 slot, box_rows pages].
  CUtensorMap k, v;
  // Boxes of [128 bytes of a row, the heads of a group, box_tokens tokens], as many rows as a consumer has.
  CUtensorMap q;
  // Same for results.
  CUtensorMap out;
  // 0: TMA does not do, rows are copied by cp.async. Then there are no maps.
  int32_t box_rows;
  // 0: of queries alike.
  int32_t box_tokens;
  // Results of 16 bits whose rows lie in such boxes too: TMA stores those of a consumer whose rows all are.
  bool stores_boxes;
  // scale log2(e), for exp2; capped scores have their scale already. As a parameter it takes no register.
  float softmax_scale_log2;
  // [2]: the scheduler's counters: work tiles that CTAs have taken beyond their first, CTAs that have ended;
  // 0 between launches. They lie where a plan counts partial results, of which there are none here.
  int32_t* progress;
  // Of rows that are copied one by one.
  PagedRowStrides key_rows, value_rows;
};

// For a plan whose row tiles have kPrefillRows, a half or, where CTAs divide keys, a quarter of them; q of 16
// bits with K/V of the same type or of fp8, or q and K/V of e4m3. `num_ctas`: at most as many as there are
// SMs; those of the plan where they divide keys, whose partial results launch_merge_partials() of sm80
// merges unless they verify. `stream` is a cudaStream_t. Throws Error(kDevice) when the launch fails.
using PrefillLaunch = void (*)(const PrefillParams& params, int num_ctas, void* stream);

}  // namespace attend::kernels::cuda::sm90
