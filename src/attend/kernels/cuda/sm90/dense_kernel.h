// Dense layers of up to 256 rows on sm_90a.
#pragma once

#include <cuda.h>

#include "attend/kernels/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kChunkElements = 64;  // inputs that are copied at once: 128 bytes of a row
inline constexpr int kPairRows = 16;       // eight rows of weights and their partners
inline constexpr int kMaxTokens = 256;
inline constexpr int kMaxWarpgroups = 2;
// Of weights, that a warpgroup multiplies.
inline constexpr int kWarpgroupRows = 64;

// Tiles of warpgroups * 64 rows of weights times chunks of the inputs are units; every CTA takes an even
// share of consecutive ones, tile by tile. A tile that several CTAs share is summed by the one that ends
// last, from the inputs' first chunk to the last one, so its bits do not depend on which one that is.
struct DenseShares {
  int32_t num_tiles, num_chunks, num_ctas;
};

// out = x weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct DenseParams {
  // [chunk, 8 rows, 2 partners, pairs]: the partner of an up row is its gate row, or that eight rows below.
  CUtensorMap weight;
  CUtensorMap x;  // [chunk, rows]
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  float* partials;    // 2 * num_ctas * warpgroups * kWarpgroupRows * tokens of the instance
  int32_t* counters;  // [num_tiles], zeros; left so
  DenseShares shares;
  int32_t num_rows, out_features;
  int32_t weight_slots;  // of the ring; at most what fits
  bool gated;
  bool accumulate;   // not gated: what out holds is added
  bool out_aligned;  // groups of eight features begin at multiples of 16 bytes
  Element out_element;
};

// How an instance is shaped: warpgroups of a CTA, rows of x that it multiplies.
struct DenseShape {
  int num_warpgroups, num_tokens;
};
// The most slots of weights that fit, and as many as the kernel is launched with.
int max_weight_slots(DenseShape shape);
// Throws Error(kDevice) when the launch fails. `shape` is one of 1 or 2 warpgroups and 32, 64, 128 or 256
// tokens.
void launch_dense_bf16(const DenseParams& params, DenseShape shape, void* stream);
void launch_dense_f16(const DenseParams& params, DenseShape shape, void* stream);

}  // namespace attend::kernels::cuda::sm90
