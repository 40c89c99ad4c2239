// How host code starts the sm80 kernels of MLA over scaled latent rows (kv_store/scaled_rows.h): the strides
// of params.k count bytes.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm80 {

// What a CTA of launch_scaled_mla() takes at most.
inline constexpr int kScaledMlaSharedBytes = 188160;

// As launch_mla(), for q of 16 bits, any page size and plans of several head groups.
void launch_scaled_mla(const AttentionParams& params, int num_row_tiles, void* stream);

// As launch_row_attention().
void launch_scaled_row_attention(const AttentionParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
