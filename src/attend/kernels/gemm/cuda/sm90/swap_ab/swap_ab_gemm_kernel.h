// The swap-AB split-K GEMM of sm_90a: what crosses to the device, and the launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kBlockK = kBlockInputs;
inline constexpr int kMaxTokens = 128;
inline constexpr int kMaxWeightStages = 20, kMaxTokenStages = 12;
inline constexpr int kSharedBytes = 227 << 10;  // that a CTA of sm_90 can have

// Deferred RMSNorm of x: the GEMM before has left x times the norm's weights, and the partial sums of squares
// that a row's accumulators are scaled with, 1 / sqrt(mean of squares + eps).
struct DeferredNorm {
  // Row r begins at element r * stride and holds sums over kPairRows inputs each; null: x is taken as it is.
  // Rows begin at multiples of 16 bytes and hold whole 16 bytes.
  const float* partial_squares;
  int64_t stride;
  int32_t num_partial_squares;  // of a row
  float eps;
};

// The norm that out goes through next, which this GEMM defers to the one after it; bf16 as out is then, and
// aligned as out is.
struct NextNorm {
  const void* weight;  // [out_features]; null: there is none
  void* weighted;      // out * weight; row r begins at element r * weighted_stride
  int64_t weighted_stride;
  float* partial_squares;  // as DeferredNorm's: of kPairRows features of out each
  int64_t partial_squares_stride;
};

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct SwapAbGemmParams {
  // [K-block, 8 rows, 2 partners, pairs]: the partner of a gate row is its up row, or that eight rows below.
  CUtensorMap weight;
  CUtensorMap x;  // [K-block, rows]
  DeferredNorm norm;
  DeviceVector bias;
  NextNorm next_norm;  // not gated
  void* out;           // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_tiles, num_k_blocks;
  int32_t tile_pairs;
  int32_t cluster_size, cluster_shift;  // 2^shift
  int32_t weight_stages, token_stages;  // of the pipelines
  bool gated;
  bool accumulate;   // not gated: what out holds is added
  bool out_aligned;  // groups of eight features begin at multiples of 16 bytes
  Element out_element;
};

// The most stages of W, at most kMaxWeightStages, that fit beside the rest into so much shared memory.
int max_weight_stages(int shared_bytes, int token_stages, const SwapAbGemmShape& shape);
// Clusters of this size that run on the current device at once.
int max_clusters(int cluster_size);
// Throws Error(kDevice) when the launch fails.
void launch_swap_ab_gemm_bf16(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream);
void launch_swap_ab_gemm_f16(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
