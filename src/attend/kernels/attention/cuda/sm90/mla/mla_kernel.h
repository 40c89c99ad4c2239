// MLA on sm_90a: what crosses to the device, and the launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kMlaHeadDimQk = 576, kMlaHeadDimV = 512;
inline constexpr int kMlaRows = 64;  // of a work tile
inline constexpr int kMlaKeys = 64;  // of a KV tile
// Panels of 64 columns of latent rows that TMA copies at a time: half of the values.
inline constexpr int kMlaBoxPanels = 4;

struct MlaParams {
  // Query heads are split into num_kv_heads groups as the plan has them, all of which read the same latent
  // rows.
  AttentionParams attention;
  // Boxes of [64 columns, 1 page, box_rows slots, panels] of the cache, whose last dimension are the panels
  // of 64 columns of a row; where rows are contiguous, of [64 columns, 1, box_rows pages, panels]. Where a
  // box has all rows of a KV tile, `latent` has kMlaBoxPanels and `latent_rope`, for the last panel, one;
  // else `latent` has one and there is no other.
  CUtensorMap latent, latent_rope;
  // Rows that TMA copies at a time; 0: rows are copied by threads and there is no map.
  int32_t box_rows;
  // Boxes of 64 columns of the rows of a work tile: of [columns, heads of a group, tokens] of q and q_rope,
  // or, where a group does not divide the rows, of [columns, kMlaRows, 1], heads and tokens being in one
  // sequence.
  CUtensorMap q, q_rope;
  bool boxes_queries;  // else they are copied by threads and there are no maps
  bool queries_in_sequence;
  // Queries by boxes; latent rows by boxes, or of fp8; results of 16 bits; no window, chunk, cap or tree
  // mask: decode of most models. It has instances of its own, without code for anything else: each launch
  // fetches instructions anew, those beside code that runs too, which takes a tenth of few short requests'
  // time.
  bool plain;
};

// For q of this dtype, latent rows of the same or of fp8, and plans without fixed splits whose row tiles have
// kMlaRows or fewer. `stream` is a cudaStream_t. Throws Error(kDevice) when a launch fails.
void launch_mla_bf16(const MlaParams& params, int num_ctas, void* stream);
void launch_mla_f16(const MlaParams& params, int num_ctas, void* stream);
// Merges the partial results that these left. `num_work_tiles`: at most so many, which decides on the CTAs.
void launch_mla_merge(const AttentionParams& params, int num_work_tiles, void* stream);

}  // namespace attend::kernels::cuda::sm90
