// Selective scan of prompts in chunks.
#pragma once

#include "attend/kernels/recurrent/cuda/common/scan_kernels.h"

namespace attend::kernels::cuda::sm80 {

// Dynamic shared memory that a GPU must have per CTA for each instance of this state_dim.
constexpr int scan_chunks_max_shared_bytes(int state_dim) { return state_dim == 256 ? 160 << 10 : 99 << 10; }

// Scans requests with more than params.max_tokens new tokens. Requires 16-bit elements, params.aligned, a
// head_dim that is a multiple of 8, a state_dim of 64, 128 or 256, and scan_chunks_max_shared_bytes().
void launch_scan_chunks_bf16(const ScanParams& params, void* stream);
void launch_scan_chunks_f16(const ScanParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
