// Selective scan of prompts in chunks.
#pragma once

#include "attend/kernels/recurrent/cuda/common/scan_kernels.h"

namespace attend::kernels::cuda::sm80 {

// Rows of a head's state per CTA.
inline constexpr int kWideSlice = 64, kNarrowSlice = 32;

// Shared memory of a CTA. A stage has 64 tokens of x, b and c, a copy of the state in 16 bits, and steps.
constexpr int scan_chunks_shared_bytes(int state_dim, int slice, int stages) {
  return stages * (2 * 64 * (slice + 2 * state_dim) + 2 * slice * state_dim + 1040) + (2 << 10);
}

// Scans requests with more than params.max_tokens new tokens. Requires 16-bit elements, params.aligned, a
// head_dim that is a multiple of 8, a state_dim of 64, 128 or 256, and the shared memory of narrow slices in
// two stages.
void launch_scan_chunks_bf16(const ScanParams& params, void* stream);
void launch_scan_chunks_f16(const ScanParams& params, void* stream);

}  // namespace attend::kernels::cuda::sm80
