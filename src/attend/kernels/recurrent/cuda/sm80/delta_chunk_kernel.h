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
// stage. With decays per channel, two arrays of k.
constexpr int delta_scan_shared_bytes(int dim_k, int slice, bool decays_per_channel) {
  constexpr int kPadding = 8;
  const int num_rows = decays_per_channel ? 3 : 2;
  const int workspace = decays_per_channel ? delta_rows_offset(dim_k) : kDeltaSlotBytes;
  return delta_scan_stages(slice) *
         (kDeltaChunk * (num_rows * (dim_k + kPadding) + slice + kPadding) * 2 + workspace);
}
// `slice`: rows of the state per CTA, 16, 32 or 64, a divisor of dim_v.
void launch_delta_chunk_scan_bf16(const DeltaChunkParams& params, int slice, void* stream);
void launch_delta_chunk_scan_f16(const DeltaChunkParams& params, int slice, void* stream);

// Both kernels with decays per channel, for dim_k 64 or 128 and any ratio. Rows of alpha are at multiples of
// 4 bytes.
void launch_delta_channel_matrices_bf16(const DeltaChunkParams& params, void* stream);
void launch_delta_channel_matrices_f16(const DeltaChunkParams& params, void* stream);
void launch_delta_channel_scan_bf16(const DeltaChunkParams& params, int slice, void* stream);
void launch_delta_channel_scan_f16(const DeltaChunkParams& params, int slice, void* stream);

}  // namespace attend::kernels::cuda::sm80
