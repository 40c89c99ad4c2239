// Input and result of the choice of a plan for attention on a GPU: plain values. choose.h selects, DevicePlan
// implements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/attention/cuda/common/plan/kv_partition.h"

namespace attend::kernels::cuda {

// A step for which a plan is chosen: limits and padded sizes, never lengths, so that a captured plan serves
// every batch of the padded size.
struct AttentionStep {
  AttentionPlanLimits limits;  // with split_tokens and num_workers set
  int num_reqs = 0;
  int max_seqlen_q = 0;
  int num_tokens = 0;     // maximum new tokens of all requests; 0: limits.max_tokens
  int max_seqlen_kv = 0;  // 0: unknown
  bool has_tree_mask = false;
  bool plans_inline = false;  // the plan is for one call only, so its CTAs may derive it

  int64_t batch_max_new_tokens() const {
    return num_tokens > 0 ? std::min(num_tokens, limits.max_tokens) : limits.max_tokens;
  }
  // Maximum new tokens of one request.
  int64_t batch_max_seqlen_q() const { return std::min<int64_t>(max_seqlen_q, batch_max_new_tokens()); }
  // Maximum rows of a request and KV head.
  int64_t most_rows() const { return batch_max_seqlen_q() * limits.num_q_heads / limits.num_kv_heads; }
};

enum class PlanKind : uint8_t {
  kVerify,        // the prefill kernel's CTAs divide the keys of few rows (sm90)
  kPrefill,       // work tiles of the sm90 prefill kernels
  kFixedSplits,   // splits that end at multiples of split_tokens
  kLatentRows,    // MLA, and attention with values wider than 256
  kFewClusters,   // decode in clusters, with one CTA per SM
  kClusters,      // decode in clusters
  kFewWorkTiles,  // decode of few work tiles without clusters
  kTiles,         // row tiles of any height
};
inline constexpr int kNumPlanKinds = 8;

// Distribution of a step's work over CTAs. Most members are those of PlanView, which documents them.
struct PlanShape {
  PlanKind kind;
  int num_row_tiles;    // upper bound, at least 1
  int num_head_groups;  // KV heads of the plan; MLA: groups of query heads that read the same latent rows
  int tile_rows, partial_rows;
  int num_ctas, heads_per_round, cluster_size, num_ctas_per_sm;
  PartitionRules partition;
  bool single_cluster_per_tile, streamed, is_prefill_plan, ctas_merge, inline_plan;

  // Returns true if the prefill kernel's CTAs divide the keys of work tiles. Otherwise they compute whole
  // work tiles.
  bool divides_prefill_keys() const { return streamed && is_prefill_plan; }
};

// Memory of a plan, enough for every step within the limits.
struct PlanSizes {
  int num_head_groups;
  int64_t num_row_tiles, num_cta_starts;
  int64_t num_partials, partial_rows, partial_columns;
  int64_t num_split_accumulators, accumulator_floats;
  int barrier_timeout_clocks;  // maximum wait of CTAs for one another

  int64_t num_partial_rows() const { return num_partials * partial_rows; }
};

}  // namespace attend::kernels::cuda
