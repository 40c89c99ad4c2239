// Parameters of the attention kernels: plain structs. Strides count elements.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cuda/common/plan/kv_partition.h"
#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/host_device.h"
#include "attend/kernels/metadata/find_page.h"

// CUDA's pair of floats, declared here because builds without CUDA include this header too.
struct float2;

namespace attend::kernels::cuda {

// QueryBatch and AttentionMask (attention_batch.h) as kernel parameters.
struct BatchParams {
  const int32_t* cu_seqlen_q;  // [num_reqs + 1]
  const int32_t* seqlen_kv;    // [num_reqs]
  const uint64_t* tree_mask;   // [num_tokens, tree_mask_words]; null: none
  const int32_t* positions;    // [num_tokens] with a tree mask
  int32_t num_reqs;
  int32_t seqlen_new;  // keys per request that CTAs with inline plans store; not included in seqlen_kv
  int32_t tree_mask_words;
  int32_t window_left;   // -1: none
  int32_t window_right;  // 0 if not `causal` and with a tree mask
  int32_t chunk;         // 0: none
  bool causal;
};

// Rows of one request for one KV head: query head g of the head's group of new token j is row j * group + g.
// A row tile has tile_rows of them. Key tiles start at multiples of kKeyTile. A KV tile is the unit by which
// keys are distributed over CTAs: one key tile, or the key tiles of a split if splits are fixed.
inline constexpr int kKeyTile = 64;

// A row tile contains everything that a CTA needs, so that a single load leads to the first keys.
struct alignas(16) RowTile {
  int32_t request;
  int32_t first_token;          // first token of the request, in the batch
  int32_t seqlen_q, seqlen_kv;  // of the request
  int32_t row_begin;
  int32_t first_query;       // new token of row_begin
  int32_t kv_begin, kv_end;  // keys that any of its rows may see; may be empty
  int32_t first_kv_tile;     // kv_begin / kv_tile_keys
  int32_t num_kv_tiles;      // at least 1, so that rows without keys are written too
  int32_t partition_offset;  // partition unit of the row tile's first work tile
  int32_t index;             // index of this row tile
};

// Header of a plan, written first by the plan kernel.
struct alignas(16) PlanHeader {
  int32_t num_row_tiles;
  int32_t num_partition_units;
  KvPartition partition;  // streamed plans
  int32_t num_tokens;     // of all requests; tokens from here on are padding
};

// Start of a CTA of a streamed plan: KV tile `first` of the work tile of a row tile and head. `length`:
// partition units from there to the end of the CTA range; below 1 if it has no KV tiles.
struct alignas(16) CtaStart {
  RowTile tile;
  int32_t head, first;
  int32_t length;
};

// Distribution of the work over CTAs. A work tile is a row tile and a KV head.
//   whole     CTA (i, h) computes work tiles of KV head h, all keys of each: of row tile i and, if there are
//             more than grid.x, one row tile of each further round
//   streamed  every CTA processes a CTA range of the partition with the same cost as all others (stream-K,
//             kv_partition.h). A work tile that spans several CTAs has partial results: 2 c for one that
//             started before CTA c, 2 c + 1 for one that starts in c. CTA c computes heads c %
//             heads_per_round, that + heads_per_round, ... of CTA range c / heads_per_round, so neighboring
//             CTAs read the same tokens at about the same time: reading a token's heads together is faster
//             than one after another. The partition has the work tiles of num_kv_heads / heads_per_round
//             heads of each row tile
//
// With fixed splits (split_accumulators is not null), a split's result never depends on earlier keys. A CTA
// that continues past the end of a split saves the merged splits so far in its accumulator storage and starts
// again. In streamed plans each split is a partial result with the index of its KV tile. If there are more KV
// tiles than partial results, the CTA in which a work tile starts computes all of it.
struct PlanView {
  PlanHeader* header;
  RowTile* row_tiles;
  CtaStart* cta_starts;  // [num_ctas + heads_per_round], streamed plans
  // [num_partials, partial_rows, head_dim_v], relative to the row max; for MLA on sm_90a in the layout of
  // mla_shared.cuh.
  float* partial_out;
  float2* partial_state;      // [num_partials, partial_rows]: row max, row sum
  int32_t* partials_done;     // [num_row_tiles, num_kv_heads], 0 between launches
  float* split_accumulators;  // [num_ctas, floats of an instance]
  int32_t num_partials, partial_rows;
  int32_t kv_tile_keys;
  int32_t tile_rows;
  int32_t num_ctas;
  int32_t heads_per_round;  // num_kv_heads is a multiple
  // CTAs that the plan counts as one: a cluster, which shares the keys of a work tile and merges in shared
  // memory. 1 except for decode of few work tiles on sm_90.
  int32_t cluster_size;
  // With clusters and one request: all keys of a work tile, up to the declared maximum, belong to one
  // cluster.
  bool single_cluster_per_tile;
  // CTAs for which an SM reserves shared memory, for steps with mostly other kernels; much of the rest is L1.
  // 0: driver default.
  int32_t num_ctas_per_sm;
  PartitionRules partition;  // streamed plans
  bool streamed;
  bool is_prefill_plan;  // plan for the sm_90 prefill kernels: one CTA per SM, or two for verification
  // Streamed plans: CTAs merge the partial results of a work tile; otherwise a separate kernel does.
  bool ctas_merge;
  // Maximum wait of a CTA for the other CTAs of a work tile (common/split_kv_barrier.cuh), in clocks.
  int32_t barrier_timeout_clocks;
  // Streamed plans: each CTA derives its part of the plan from the batch, in which a request has at most one
  // row tile. Header and cta_starts are stored only for a separate merge kernel.
  bool inline_plan;
};

// Descales of one operand per request and KV head.
struct HeadScaleParams {
  const float* data;  // null: 1
  int64_t request_stride, head_stride;
};

// Keys and values that CTAs store before they read them, each those of its own range: batch.seqlen_new per
// request.
struct NewKeyRows {
  TokenRows k, v;
  int32_t capacity;  // maximum keys of a request
};

struct AttentionParams {
  TokenRows q;
  TokenRows q_rope;  // MLA: rope part of q, for the last columns of K; data null: none
  OutRows out;
  float* lse;  // null: not requested
  int64_t lse_token_stride, lse_head_stride;
  PagedRows k, v;
  KvIndex index;
  NewKeyRows new_keys;
  BatchParams batch;
  PlanView plan;
  const float* sinks;  // [num_q_heads]; null: none
  float scale;         // includes k_scale
  float logit_cap;     // 0: none
  float v_scale;
  float empty_lse;     // LSE of a row that sees no key
  int32_t num_tokens;  // including padding
  int32_t num_q_heads, num_kv_heads, group;
  uint32_t group_reciprocal;  // 2^32 / group, rounded up; 0 if group is 1
  int32_t head_dim_qk, head_dim_v;
  int32_t rope_dim;  // of q_rope; 0: none
  Element q_element, kv_element, out_element;
  bool prefix_ready;  // attention_batch.h
  // For queries or K/V of fp8; otherwise null.
  HeadScaleParams q_scales, k_scales, v_scales;
};

// log2(e): scales scores such that the softmax's exponentials are powers of two.
inline constexpr float kLog2E = 1.44269504088896340736f;

// Returns scale * log2(e); capped scores already include the scale.
ATTEND_HOST_DEVICE inline float get_softmax_scale_log2(const AttentionParams& params) {
  return params.logit_cap > 0.0f ? kLog2E : params.scale * kLog2E;
}

}  // namespace attend::kernels::cuda
