// Dense layers of up to 128 rows on sm_90a.
#pragma once

#include <cuda.h>

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/gemm/cuda/sm90/dense_shape.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kChunkElements = 64;  // inputs that are copied at once: 128 bytes of a row
inline constexpr int kMaxTokens = 128;
inline constexpr int kMaxWeightSlots = 20, kMaxTokenSlots = 12;
inline constexpr int kSharedBytes = 227 << 10;  // that a CTA of sm_90 can have

// The norm of x, which the product before has begun: a row's sums are divided by the root of the mean of the
// squares of what was normed, plus eps.
struct BegunNorm {
  // Row r begins at element r * stride and holds the sums of squares of kPairRows inputs each; null: x is
  // taken as it is. Rows begin at multiples of 16 bytes and hold whole 16 bytes.
  const float* squares;
  int64_t stride;
  int32_t num_squares;  // of a row
  float eps;
};

// The norm that takes out next, bf16 as out is then, and aligned as out is.
struct NextNorm {
  const void* weight;  // [out_features]; null: there is none
  void* normed;        // out * weight; row r begins at element r * normed_stride
  int64_t normed_stride;
  float* squares;  // as BegunNorm's: of kPairRows features of out each
  int64_t squares_stride;
};

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct DenseParams {
  // [chunk, 8 rows, 2 partners, pairs]: the partner of a gate row is its up row, or that eight rows below.
  CUtensorMap weight;
  CUtensorMap x;  // [chunk, rows]
  BegunNorm norm;
  DeviceVector bias;
  NextNorm next_norm;  // not gated
  void* out;           // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, out_features;
  int32_t num_tiles, num_chunks;
  int32_t tile_pairs;
  int32_t cluster_size, cluster_shift;  // 2^shift
  int32_t weight_slots, token_slots;    // of the rings
  bool gated;
  bool accumulate;   // not gated: what out holds is added
  bool out_aligned;  // groups of eight features begin at multiples of 16 bytes
  Element out_element;
};

// The most slots of weights, at most kMaxWeightSlots, that fit beside the rest into so much shared memory.
int weight_slots_in(int shared_bytes, int token_slots, const DenseShape& shape);
// Clusters of this size that run on the current device at once.
int max_clusters(int cluster_size);
// Throws Error(kDevice) when the launch fails.
void launch_dense_bf16(const DenseParams& params, const DenseShape& shape, void* stream);
void launch_dense_f16(const DenseParams& params, const DenseShape& shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
