// Swap-AB split-K GEMM of sm_90a: parameters and launches.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kBlockK = kBlockInputs;
inline constexpr int kMaxTokens = 128;
inline constexpr int kMaxWeightStages = 20, kMaxTokenStages = 12;
inline constexpr int kSharedBytes = 227 << 10;  // maximum shared memory per CTA on sm_90

// Deferred RMSNorm of x: the previous GEMM wrote x times the norm weights, and partial sums of squares. A
// row's accumulators are multiplied by 1 / sqrt(mean of squares + eps).
struct DeferredNorm {
  // Row r starts at element r * stride and holds sums over kPairRows inputs each. Null: no norm. Rows start
  // at multiples of 16 bytes and are padded to whole 16 bytes.
  const float* partial_squares;
  int64_t stride;
  int32_t num_partial_squares;  // per row
  float eps;
};

// Norm of out that this GEMM defers to the next one. bf16, like out, and with the same alignment.
struct NextNorm {
  const void* weight;  // [out_features]; null: none
  void* weighted;      // out * weight; row r starts at element r * weighted_stride
  int64_t weighted_stride;
  float* partial_squares;  // as in DeferredNorm, one sum per kPairRows features of out
  int64_t partial_squares_stride;
};

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct SwapAbGemmParams {
  // [K-block, 8 rows, 2 partners, pairs]: the partner of a gate row is its up row; otherwise it is the row
  // eight below.
  CUtensorMap weight;
  CUtensorMap x;  // [K-block, rows]
  DeferredNorm norm;
  DeviceVector bias;
  NextNorm next_norm;  // not if gated
  void* out;           // row r starts at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_tiles, num_k_blocks;
  int32_t tile_pairs;
  int32_t cluster_size, cluster_shift;  // cluster_size = 2^cluster_shift
  int32_t weight_stages, token_stages;  // stages of the pipelines
  bool gated;
  bool accumulate;   // not gated: adds to the contents of out
  bool out_aligned;  // groups of eight features start at multiples of 16 bytes
  Element out_element;
};

// Returns the number of stages of W, at most kMaxWeightStages, that fit into the shared memory next to
// everything else.
int max_weight_stages(int shared_bytes, int token_stages, const SwapAbGemmShape& shape);
// Returns the number of clusters of this size that run concurrently on the current device.
int max_clusters(int cluster_size);
// Throws Error(kDevice) if the launch fails.
void launch_swap_ab_gemm_bf16(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream);
void launch_swap_ab_gemm_f16(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
