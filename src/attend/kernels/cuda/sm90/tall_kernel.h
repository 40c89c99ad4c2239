// Tall layers of up to 256 rows on sm_90a.
#pragma once

#include <cuda.h>

#include "attend/kernels/cuda/elementwise_kernels.h"
#include "attend/kernels/cuda/sm90/tall_shape.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kChunkElements = 64;  // inputs that are copied at once: 128 bytes of a row
inline constexpr int kRowBytes = 128;      // of a chunk
inline constexpr int kPairBytes = kPairRows * kRowBytes;
inline constexpr int kBoxStep = 8;  // a box of x has a multiple of so many rows
inline constexpr int kMaxTokens = kMaxTokenGroups * kWarpgroupTokens;
inline constexpr int kMaxNormedTokens = 128;
inline constexpr int kMaxWeightSlots = 20, kMaxTokenSlots = 8;
inline constexpr int kSharedBytes = 227 << 10;  // that a CTA of sm_90 can have

// out = norm(x) weight^T (+ bias) (+ out), or silu(gate) * up of its two halves.
struct TallParams {
  // [chunk, 8 rows, 2 partners, pairs]: the partner of a gate row is its up row, or that eight rows below.
  CUtensorMap weight;
  CUtensorMap x;  // [chunk, rows]
  // [in_features], bf16 as x is then, aligned to 16 bytes: rows of x are first divided by the root of their
  // mean square plus norm_eps, and multiplied with it; null: not
  const void* norm;
  float norm_eps;
  DeviceVector bias;
  void* out;  // row r begins at element r * out_stride
  int64_t out_stride;
  int32_t num_rows, in_features, out_features;
  int32_t num_tiles, num_chunks;
  int32_t tile_pairs;
  int32_t num_parts;
  int32_t box_rows;                   // of x: num_rows or a few more
  int32_t weight_slots, token_slots;  // of the rings
  bool gated;
  bool accumulate;  // not gated: what out holds is added
  Element
      out_element;  // of x, or float32. Two elements from an even one on begin at a multiple of their bytes.
};

// Bytes of shared memory that a launch takes.
int shared_bytes(const TallParams& params, int token_groups);
// Clusters of this size that run on the current device at once.
int max_clusters(int cluster_size);

}  // namespace attend::kernels::cuda::sm90
