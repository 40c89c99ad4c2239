// Decode at head dims up to 512 on sm_90a (wide_decode.cuh): parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kWideHeadDim = 512;
inline constexpr int kWideKeys = 64;  // keys of a KV tile

struct WideDecodeParams {
  AttentionParams attention;
  // Boxes of [64 columns, 1 head, box_rows slots, 1 page] of the cache; if K/V are contiguous, of [64
  // columns, 1 head, 1 slot, box_rows pages].
  CUtensorMap k, v;
  // Rows per TMA copy; 0: threads copy rows and there are no maps.
  int32_t box_rows;
};

// Supports q, K and V of this dtype and plans without fixed splits, with row tiles of 16 or 64 rows.
// `num_ctas`: that of a streamed plan. launch_merge_partials() of sm80 merges partial results. `stream` is a
// cudaStream_t. Throws Error(kDevice) if the launch fails.
void launch_wide_decode_bf16(const WideDecodeParams& params, int num_ctas, void* stream);
void launch_wide_decode_f16(const WideDecodeParams& params, int num_ctas, void* stream);

}  // namespace attend::kernels::cuda::sm90
