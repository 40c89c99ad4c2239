// The scan of delta_chunk_scan.cuh with decays per channel: k and q are scaled by delta_channel_matrices.cuh.
#pragma once

#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_scan.cuh"

namespace attend::kernels::cuda::sm80 {

template <class T, int kDimK>
void launch_delta_channel_scan_for_dim(const DeltaChunkParams& params, int slice, void* stream) {
  using Rows = PaddedRows<kDimK>;
  if (slice == 64) return launch_delta_scan_for<T, kDimK, DeltaChannelStage<Rows, 64, kDimK>>(params, stream);
  if (slice == 32) return launch_delta_scan_for<T, kDimK, DeltaChannelStage<Rows, 32, kDimK>>(params, stream);
  launch_delta_scan_for<T, kDimK, DeltaChannelStage<Rows, 16, kDimK>>(params, stream);
}

template <class T>
void launch_delta_channel_scan(const DeltaChunkParams& params, int slice, void* stream) {
  if (params.delta.dim_k == 64) return launch_delta_channel_scan_for_dim<T, 64>(params, slice, stream);
  launch_delta_channel_scan_for_dim<T, 128>(params, slice, stream);
}

}  // namespace attend::kernels::cuda::sm80
