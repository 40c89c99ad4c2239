// MLA on sm_90a: parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kMlaHeadDimQk = 576, kMlaHeadDimV = 512;
inline constexpr int kMlaRows = 64;  // rows of a work tile
inline constexpr int kMlaKeys = 64;  // keys of a KV tile
// Panels of 64 columns of latent rows per TMA copy: half of the values.
inline constexpr int kMlaBoxPanels = 4;

struct MlaParams {
  // Query heads are split into num_kv_heads groups by the plan; all groups read the same latent rows.
  AttentionParams attention;
  // Boxes of [64 columns, 1 page, box_rows slots, panels] of the cache, with the panels of 64 columns of a
  // row as last dimension; if rows are contiguous, of [64 columns, 1, box_rows pages, panels]. If a box has
  // all rows of a KV tile, `latent` has kMlaBoxPanels panels and `latent_rope`, for the last panel, has one.
  // Otherwise `latent` has one panel and latent_rope is unused.
  CUtensorMap latent, latent_rope;
  // rows per TMA copy; 0: threads copy rows and there is no map
  int32_t box_rows;
  // Boxes of 64 columns of the rows of a work tile: [columns, heads of a group, tokens] of q and q_rope or,
  // if a group does not divide the rows, [columns, kMlaRows, 1] with heads and tokens in one sequence.
  CUtensorMap q, q_rope;
  bool boxes_queries;  // otherwise threads copy queries and there are no maps
  bool queries_in_sequence;
  // True if queries are copied in boxes; latent rows are copied in boxes or are fp8; results are 16-bit; and
  // there is no window, chunk, cap or tree mask. This is decode of most models. Separate instances support
  // only this case: each launch fetches its instructions again, including unused code next to them, which
  // costs a tenth of the time of few short requests.
  bool plain;
};

// Supports q of this dtype, latent rows of the same dtype or fp8, and plans without fixed splits with at most
// kMlaRows rows per row tile. `stream` is a cudaStream_t. Throws Error(kDevice) if a launch fails.
void launch_mla_bf16(const MlaParams& params, int num_ctas, void* stream);
void launch_mla_f16(const MlaParams& params, int num_ctas, void* stream);
// Merges the partial results of these kernels. `num_work_tiles`: an upper bound, which determines the number
// of CTAs.
void launch_mla_merge(const AttentionParams& params, int num_work_tiles, void* stream);

}  // namespace attend::kernels::cuda::sm90
