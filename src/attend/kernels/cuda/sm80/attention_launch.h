// How host code starts an instance of the sm80 attention kernels.
#pragma once

#include "attend/kernels/cuda/attention_params.h"

namespace attend::kernels::cuda::sm80 {

// Launches `num_ctas` CTAs for row tiles of params.plan.tile_rows on `stream`, a cudaStream_t. Throws
// Error(kDevice).
using AttentionLaunch = void (*)(const AttentionParams& params, int num_ctas, void* stream);

// Merges what the CTAs of a streamed plan left. Launched after every streamed attention.
void launch_merge_partials(const AttentionParams& params, void* stream);

// Any dtype, head dim, stride and alignment, MLA's split q too: a warp per token and query head, no plan.
void launch_row_attention(const AttentionParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
