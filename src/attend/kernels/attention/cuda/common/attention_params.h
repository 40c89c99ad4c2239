// What crosses to the device for attention: plain structs. Strides count elements.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cuda/common/plan/kv_partition.h"
#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/host_device.h"
#include "attend/kernels/metadata/page_of.h"

// CUDA's pair of floats; builds without CUDA see this header too.
struct float2;

namespace attend::kernels::cuda {

// QueryBatch and AttentionMask (attention_batch.h).
struct BatchParams {
  const int32_t* cu_seqlen_q;  // [num_reqs + 1]
  const int32_t* seqlen_kv;    // [num_reqs]
  const uint64_t* tree_mask;   // [num_tokens, tree_mask_words]; null: none
  const int32_t* positions;    // [num_tokens] with a tree mask
  int32_t num_reqs;
  int32_t seqlen_new;  // keys of each request that CTAs with inline plans store, and seqlen_kv leaves out
  int32_t tree_mask_words;
  int32_t window_left;   // -1: none
  int32_t window_right;  // 0 without `causal` and with a tree mask
  int32_t chunk;         // 0: none
  bool causal;
};

// Rows of one request for one KV head: query head g of the head's group of new token j is row j * group + g.
// A row tile is tile_rows of them. Key tiles begin at multiples of kKeyTile; a KV tile is what CTAs divide
// keys by: one key tile, or those of a split where splits are fixed.
inline constexpr int kKeyTile = 64;

// A row tile says all that a CTA wants to know of it, so that one load leads to the first keys.
struct alignas(16) RowTile {
  int32_t request;
  int32_t first_token;          // of the request, in the batch
  int32_t seqlen_q, seqlen_kv;  // of the request
  int32_t row_begin;
  int32_t first_query;       // new token of row_begin
  int32_t kv_begin, kv_end;  // keys that any of its rows may see; empty: none
  int32_t first_kv_tile;     // kv_begin / kv_tile_keys
  int32_t num_kv_tiles;      // at least 1, so that rows without keys are written too
  int32_t partition_offset;  // of the row tile's first work tile on the plan's line
  int32_t index;             // of this row tile
};

// What the plan kernel writes first.
struct alignas(16) PlanHeader {
  int32_t num_row_tiles;
  int32_t num_partition_units;
  KvPartition partition;  // streamed
  int32_t num_tokens;     // of all requests; what lies behind them is padding
};

// Where a CTA of a streamed plan begins: KV tile `first` of the work tile of a row tile and head. `length`:
// of the line from there to the end of the CTA range; below 1 where that has no KV tiles.
struct alignas(16) CtaStart {
  RowTile tile;
  int32_t head, first;
  int32_t length;
};

// How CTAs divide the work. A work tile is a row tile and a KV head.
//   whole     CTA (i, h) computes work tiles of KV head h, all keys of each: of row tile i and, where there
//   are
//             more than grid.x, of one of each further round of them
//   streamed  every CTA takes a CTA range of the plan's line, which costs as much as every other (stream-K,
//             kv_partition.h). A work tile that lies in several CTAs leaves partial results: 2 c for one that
//             began before CTA c, 2 c + 1 for one that begins in c. CTA c computes heads c % heads_per_round,
//             that + heads_per_round, ... of CTA range c / heads_per_round, so neighboring CTAs read the same
//             tokens at about the same time: memory gives a token's heads together faster than one after
//             another. The line has the work tiles of num_kv_heads / heads_per_round heads of each row tile
//
// With fixed splits (split_accumulators is not null) a split's result never depends on what lies before it. A
// CTA that goes on over the end of a split leaves the splits so far in its bank and begins anew; streamed,
// each split is a partial result, numbered as its KV tile. Where there are more KV tiles than partial
// results, the CTA in which a work tile begins computes all of it.
struct PlanView {
  PlanHeader* header;
  RowTile* row_tiles;
  CtaStart* cta_starts;  // [num_ctas + heads_per_round], streamed
  // [num_partials, partial_rows, head_dim_v], relative to the row max; of MLA on sm_90a as mla_shared.cuh
  // says.
  float* partial_out;
  float2* partial_state;      // [num_partials, partial_rows]: row max, row sum
  int32_t* partials_done;     // [num_row_tiles, num_kv_heads], 0 between launches
  float* split_accumulators;  // [num_ctas, floats of an instance]
  int32_t num_partials, partial_rows;
  int32_t kv_tile_keys;
  int32_t tile_rows;
  int32_t num_ctas;
  int32_t heads_per_round;  // num_kv_heads is a multiple
  // CTAs that are one for the plan: a cluster, which shares the keys of a work tile and merges in shared
  // memory. 1 but for decode of few work tiles on sm_90.
  int32_t cluster_size;
  // In clusters, one request: all keys of a work tile, as many as the batch was said to have, lie in one.
  bool single_cluster_per_tile;
  // CTAs that an SM keeps shared memory for, where most of a step is other kernels': much of the rest is L1.
  // 0: as the driver has it.
  int32_t num_ctas_per_sm;
  PartitionRules partition;  // streamed
  bool streamed;
  bool is_prefill_plan;  // one of an SM, two where they verify: for attention of many rows on sm_90
  // Streamed: CTAs merge the partial results of a work tile; else a kernel does it afterward.
  bool ctas_merge;
  int32_t
      barrier_timeout_clocks;  // that a CTA waits for the others of a work tile (common/split_kv_barrier.cuh)
  // Streamed: there is no plan but what each CTA derives from the batch, in which a request has one row tile
  // at most; left in header and cta_starts for a kernel that merges.
  bool inline_plan;
};

// Descales of one operand of each request and K/V head.
struct HeadScaleParams {
  const float* data;  // null: 1
  int64_t request_stride, head_stride;
};

// Keys and values that CTAs store before they read them, each those of its own range: batch.seqlen_new of
// each request.
struct NewKeyRows {
  TokenRows k, v;
  int32_t capacity;  // keys of a request that there is room for
};

struct AttentionParams {
  TokenRows q;
  TokenRows q_rope;  // MLA: the rotated part of q, for the last columns of K; data null: none
  OutRows out;
  float* lse;  // null: not wanted
  int64_t lse_token_stride, lse_head_stride;
  PagedRows k, v;
  KvIndex index;
  NewKeyRows new_keys;
  BatchParams batch;
  PlanView plan;
  const float* sinks;  // [num_q_heads]; null: none
  float scale;         // times k_scale
  float logit_cap;     // 0: none
  float v_scale;
  float empty_lse;     // LSE of a row that sees no key
  int32_t num_tokens;  // padding included
  int32_t num_q_heads, num_kv_heads, group;
  uint32_t group_reciprocal;  // 2^32 / group, rounded up; 0 where the group is 1
  int32_t head_dim_qk, head_dim_v;
  int32_t rope_dim;  // of q_rope; 0: none
  Element q_element, kv_element, out_element;
  bool prefix_ready;  // attention_batch.h
  // Of queries or K/V of fp8; else there are none.
  HeadScaleParams q_scales, k_scales, v_scales;
};

// What scores are scaled by so that the softmax's exponentials are powers of two.

inline constexpr float kLog2E = 1.44269504088896340736f;

// scale log2(e); capped scores have their scale already.
ATTEND_HOST_DEVICE inline float get_softmax_scale_log2(const AttentionParams& params) {
  return params.logit_cap > 0.0f ? kLog2E : params.scale * kLog2E;
}

}  // namespace attend::kernels::cuda
