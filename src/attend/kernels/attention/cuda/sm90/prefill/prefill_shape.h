// Shapes of prefill on sm_90a that the kernel choice depends on.
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/attention/cuda/common/plan/prefill_plan.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"

namespace attend::kernels::cuda::sm90 {

// Head dims of instances.cmake. If two instances fit, the cheaper one is first.
inline constexpr std::array kPrefillDims{HeadDims{64, 64},   HeadDims{96, 96},   HeadDims{128, 128},
                                         HeadDims{192, 128}, HeadDims{256, 256}, HeadDims{512, 512}};
// Head dims for fp8 K/V that are converted to 16 bits.
inline constexpr std::array kFp8PrefillDims{HeadDims{64, 64}, HeadDims{128, 128}};
// Head dims for e4m3 q, K and V.
inline constexpr std::array kE4m3PrefillDims{HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{192, 128}};

// Head dims that support plans with fixed splits, for 16-bit K/V.
constexpr bool has_fixed_splits(HeadDims dims) { return dims == HeadDims{128, 128}; }

// Returns the number of CTAs of a cluster that computes a work tile: CTAs divide wide head dims.
constexpr int ctas_per_work_tile(HeadDims dims) { return dims.qk > 256 ? 2 : 1; }

// Returns the largest number of work tiles. A work tile combines consecutive row tiles of a request if they
// are lower than kPrefillRows.
constexpr int64_t max_prefill_work_tiles(int64_t num_row_tiles, int64_t num_reqs, int tile_rows,
                                         int64_t num_kv_heads) {
  const int64_t row_tiles_per_work_tile = kPrefillRows / tile_rows;
  return (num_row_tiles + num_reqs * (row_tiles_per_work_tile - 1)) / row_tiles_per_work_tile * num_kv_heads;
}

}  // namespace attend::kernels::cuda::sm90
