// Gated dense layers of up to 256 rows on sm_90a by tall tiles.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/tall_shape.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kTallChunkInputs = 64;  // that are copied at once: 128 bytes of a row

// out = silu(gate) * up, [gate | up] = x weight^T (+ bias).
struct TallParams {
  CUtensorMap weight;  // [chunk, 8 rows, gate and up, pairs of one copy]
  CUtensorMap x;       // [chunk, rows of one copy]
  DeviceVector bias;
  void* out;  // of x's type; row r begins at element r * out_stride, at a multiple of 8 bytes
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_tiles, num_chunks;
  bool shares_weights;  // the CTAs of a cluster have different rows of x; else different tiles
};

// Throws Error(kInvalidArgument) for a height that there is no kernel for, Error(kDevice) when the launch
// fails.
void launch_tall_bf16(const TallParams& params, const TallShape& shape, void* stream);
void launch_tall_f16(const TallParams& params, const TallShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
