// Gated-MLP GEMM of sm_90a: parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kGatedMlpBlockK = 64;  // inputs of a K-block: 128 bytes of a row

// out = silu(gate) * up, [gate | up] = x weight^T (+ bias).
struct GatedMlpGemmParams {
  CUtensorMap weight;  // [K-block, 8 rows, gate and up, pairs of one copy]
  CUtensorMap x;       // [K-block, rows of one copy]
  DeviceVector bias;
  void* out;  // dtype of x; row r starts at element r * out_stride, at a multiple of 8 bytes
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_tiles, num_k_blocks;
  bool multicasts_weights;  // the CTAs of a cluster have different rows of x; otherwise different tiles
};

// Throws Error(kInvalidArgument) for a height without a kernel, and Error(kDevice) if the launch fails.
void launch_gated_mlp_gemm_bf16(const GatedMlpGemmParams& params, const GatedMlpGemmShape& shape,
                                void* stream);
void launch_gated_mlp_gemm_f16(const GatedMlpGemmParams& params, const GatedMlpGemmShape& shape,
                               void* stream);

}  // namespace attend::kernels::cuda::sm90
