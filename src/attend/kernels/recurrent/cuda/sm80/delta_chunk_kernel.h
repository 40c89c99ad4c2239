// Kernels of the chunk form (delta_chunk_layout.h).
#pragma once

#include "attend/kernels/recurrent/cuda/common/delta_chunk_layout.h"
#include "attend/kernels/recurrent/cuda/common/delta_kernels.h"

namespace attend::kernels::cuda::sm80 {

// Largest number of value heads per key head.
inline constexpr int kMaxDeltaRatio = 8;

// Supported: ratio up to kMaxDeltaRatio, dim_k 64, 96 or 128, dim_v a multiple of 16, elements of 16 bits,
// rows of q, k, v and out at multiples of 16 bytes.
void launch_delta_chunk_matrices_bf16(const DeltaChunkParams& params, void* stream);
void launch_delta_chunk_matrices_f16(const DeltaChunkParams& params, void* stream);

// Stages of the scan with a slice of 64 for one CTA per SM, otherwise for two.
constexpr int delta_scan_stages(int slice) { return slice == 64 ? 3 : 2; }
// Bytes of shared memory per CTA of the scan: k, q, v with padded rows, and the workspace of a chunk per
// stage.
constexpr int delta_scan_shared_bytes(int dim_k, int slice) {
  constexpr int kPadding = 8;
  return delta_scan_stages(slice) *
         (kDeltaChunk * (2 * (dim_k + kPadding) + slice + kPadding) * 2 + kDeltaSlotBytes);
}
// `slice`: rows of the state per CTA, 16, 32 or 64, a divisor of dim_v.
void launch_delta_chunk_scan_bf16(const DeltaChunkParams& params, int slice, void* stream);
void launch_delta_chunk_scan_f16(const DeltaChunkParams& params, int slice, void* stream);

}  // namespace attend::kernels::cuda::sm80
