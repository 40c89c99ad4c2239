// How host code starts an instance of the sm80 attention kernels.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm80 {

// Launches the kernel for a plan of at most `num_row_tiles` row tiles on `stream`, a cudaStream_t. A CTA
// takes tile_shared_bytes() of tile_config.h. Throws Error(kDevice).
using AttentionLaunch = void (*)(const AttentionParams& params, int num_row_tiles, void* stream);

// Merges what the CTAs of a streamed plan left whose ctas_merge is false. Launched after attention or MLA.
void launch_merge_partials(const AttentionParams& params, void* stream);

// MLA for q and latent rows of one 16-bit dtype that begin at multiples of 16 bytes, up to 576 and 512 wide,
// and plans without fixed splits. A CTA takes kMlaSharedBytes of tile_config.h at most. As AttentionLaunch.
void launch_mla(const AttentionParams& params, int num_row_tiles, void* stream);

// Any dtype, head dim, stride and alignment, MLA's split q too: a warp per token and query head, no plan.
void launch_row_attention(const AttentionParams& params, void* stream);

// How host code starts the sm80 kernels of MLA over scaled latent rows (selected_rows.h): the strides
// of params.k count bytes.

// What a CTA of launch_scaled_mla() takes at most.
inline constexpr int kScaledMlaSharedBytes = 188160;

// As launch_mla(), for q of 16 bits, any page size and plans of several head groups.
void launch_scaled_mla(const AttentionParams& params, int num_row_tiles, void* stream);

// As launch_row_attention().
void launch_scaled_row_attention(const AttentionParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
