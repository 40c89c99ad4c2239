// Launches of the sm80 attention kernels.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm80 {

// Launches the kernel for a plan of at most `num_row_tiles` row tiles on `stream`, a cudaStream_t. A CTA
// needs tile_shared_bytes() of tile_config.h. Throws Error(kDevice).
using AttentionLaunch = void (*)(const AttentionParams& params, int num_row_tiles, void* stream);

// Merges the partial results of a streamed plan with ctas_merge = false. Launched after attention or MLA.
void launch_merge_partials(const AttentionParams& params, void* stream);

// MLA for q and latent rows of one 16-bit dtype that start at multiples of 16 bytes, up to 576 and 512 wide,
// and plans without fixed splits. A CTA needs at most kMlaSharedBytes of tile_config.h. See AttentionLaunch.
void launch_mla(const AttentionParams& params, int num_row_tiles, void* stream);

// Attention for q, K and V of one 16-bit dtype at head dims up to 512, otherwise like launch_mla(), for plans
// of several KV heads.
void launch_wide_tiles(const AttentionParams& params, int num_row_tiles, void* stream);

// Supports any dtype, head dim, stride and alignment, and MLA's split q: one warp per token and query head,
// without a plan.
void launch_row_attention(const AttentionParams& params, void* stream);

// Launches of the sm80 kernels of MLA over scaled latent rows (selected_rows.h). The strides of params.k
// count bytes.

// Maximum shared memory of a CTA of launch_scaled_mla().
inline constexpr int kScaledMlaSharedBytes = 188160;

// Like launch_mla(), for 16-bit q, any page size and plans of several head groups.
void launch_scaled_mla(const AttentionParams& params, int num_row_tiles, void* stream);

// Like launch_row_attention().
void launch_scaled_row_attention(const AttentionParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
