// What the choice of a kernel knows of attention of many rows on sm_90a.
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/attention/cuda/common/plan/prefill_plan.h"
#include "attend/kernels/attention/cuda/common/tile_config.h"

namespace attend::kernels::cuda::sm90 {

// The instances of instances.cmake, of two that hold head dims the cheaper one first.
inline constexpr std::array kPrefillDims{HeadDims{64, 64}, HeadDims{96, 96}, HeadDims{128, 128},
                                         HeadDims{192, 128}, HeadDims{256, 256}};
// Those for K/V of fp8 that become 16 bits.
inline constexpr std::array kFp8PrefillDims{HeadDims{64, 64}, HeadDims{128, 128}};
// For q and K/V of e4m3.
inline constexpr std::array kE4m3PrefillDims{HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{192, 128}};

// Those that take plans with fixed splits, of 16-bit K/V.
constexpr bool has_fixed_splits(HeadDims dims) { return dims == HeadDims{128, 128}; }

// Work tiles that there are at most. Row tiles lower than one are taken together with the next of their
// request.
constexpr int64_t max_prefill_work_tiles(int64_t num_row_tiles, int64_t num_reqs, int tile_rows,
                                         int64_t num_kv_heads) {
  const int64_t row_tiles_per_work_tile = kPrefillRows / tile_rows;
  return (num_row_tiles + num_reqs * (row_tiles_per_work_tile - 1)) / row_tiles_per_work_tile * num_kv_heads;
}

}  // namespace attend::kernels::cuda::sm90
