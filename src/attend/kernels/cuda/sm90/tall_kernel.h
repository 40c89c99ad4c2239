// Dense layers of up to 256 rows on sm_90a by tall tiles.
#pragma once

#include <cuda.h>

#include "attend/kernels/cuda/sm90/dense_kernel.h"
#include "attend/kernels/cuda/sm90/tall_shape.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kMaxTallTokens = kMaxTokenGroups * kGroupTokens, kMaxNormedTokens = 128;
inline constexpr int kMaxTallSlots = 16;  // of either ring
inline constexpr int kBoxStep = 8;        // a box of x has a multiple of so many rows

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
  bool accumulate;      // not gated: what out holds is added
  Element out_element;  // of x, or float32: two, from an even one on, begin at a multiple of their bytes
};

// Bytes of shared memory that a launch takes.
int tall_shared_bytes(const TallParams& params, int token_groups);

}  // namespace attend::kernels::cuda::sm90
