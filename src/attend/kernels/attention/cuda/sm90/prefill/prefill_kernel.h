// Prefill on sm_90a (prefill.cuh): kernel parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/plan/paged_row_strides.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_shape.h"

namespace attend::kernels::cuda::sm90 {

// For 16-bit K and V. Head dims with three consumers leave registers for 96 keys per consumer.
constexpr bool has_three_consumers(int head_dim_qk) { return head_dim_qk <= 96; }
constexpr int prefill_keys(int head_dim_qk) {
  return has_three_consumers(head_dim_qk) ? 96 : head_dim_qk > 192 ? 64 : 128;
}
// Keys of a KV tile for work tiles of up to kVerifyRows rows. With more bytes in flight, memory serves the
// SMs of some GPCs so much sooner that others end 60 % later.
inline constexpr int kVerifyKeys = 32;
// Largest number of rows of a TMA box; KV tiles begin at multiples of it. All fp8 tiles have 128 keys.
constexpr int kMaxFp8BoxRows = 64;
constexpr int max_box_rows(int head_dim_qk, bool verifies) {
  return !verifies && prefill_keys(head_dim_qk) % 64 == 0 ? 64 : 32;
}
// Returns true if a plan is for verification.
constexpr bool verifies(const PlanView& plan) { return divides_keys(plan) && plan.tile_rows <= kVerifyRows; }

struct PrefillParams {
  AttentionParams attention;
  // Boxes of [128 bytes of a row, 1 head, box_rows slots of a page, 1 page] of the cache; if K/V are
  // contiguous, of [128 bytes, 1 head, 1 slot, box_rows pages].
  CUtensorMap k, v;
  // Boxes of [128 bytes of a row, the heads of a group, box_tokens tokens]: the rows of one consumer.
  CUtensorMap q;
  // Same for results.
  CUtensorMap out;
  // 0: TMA is not used and rows are copied with cp.async; `k` and `v` are then not set.
  int32_t box_rows;
  // 0: TMA is not used for queries.
  int32_t box_tokens;
  // Rows of 16-bit results form such boxes too: TMA stores those of a consumer if all its rows are valid.
  bool stores_boxes;
  // scale log2(e), for exp2; capped scores are already scaled. A parameter takes no register.
  float softmax_scale_log2;
  // [2]: counters of the scheduler: work tiles that CTAs have taken after their first, CTAs that have ended;
  // 0 between launches. Memory of a plan's counters of partial results, which this kernel does not use.
  int32_t* progress;
  // Strides of rows that are copied one by one.
  PagedRowStrides key_rows, value_rows;
};

// Launches a plan with row tiles of kPrefillRows, a half or, if CTAs divide keys, a quarter of them. q is
// 16-bit with K/V of the same type or fp8, or q and K/V are e4m3. `num_ctas`: at most the number of SMs; that
// of the plan if CTAs divide keys; in pairs, the number of pairs. launch_merge_partials() of sm80 merges
// their partial results, unless they verify. `stream` is a cudaStream_t. Throws Error(kDevice) if the launch
// fails.
using PrefillLaunch = void (*)(const PrefillParams& params, int num_ctas, void* stream);

}  // namespace attend::kernels::cuda::sm90
