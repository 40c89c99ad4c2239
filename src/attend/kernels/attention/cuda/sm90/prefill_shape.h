// What the choice of a kernel knows of attention of many rows on sm_90a.
#pragma once

#include <array>
#include <cstdint>

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/attention/cuda/common/head_dims.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kPrefillRows = 128;  // of a work tile: one row tile of the plan, or two lower ones

// The instances of instances.cmake, of two that hold head dims the cheaper one first; the first of them are
// there for K/V of fp8 too.
inline constexpr std::array kPrefillDims{HeadDims{64, 64}, HeadDims{128, 128}, HeadDims{192, 128},
                                         HeadDims{256, 256}};
inline constexpr int kNumPrefillDimsOfFp8 = 2;

// Whether the CTAs of a plan that prefill takes divide the keys of work tiles. Else they take whole ones, one
// after another, also where the plan is streamed: it is so for lower tiles.
ATTEND_HOST_DEVICE constexpr bool divides_keys(const PlanView& plan) {
  return plan.streamed && plan.tile_rows == kPrefillRows;
}

// Work tiles that there are at most. Row tiles lower than one are taken together with the next of their
// request.
constexpr int64_t most_prefill_jobs(int64_t num_row_tiles, int64_t num_reqs, int tile_rows,
                                    int64_t num_kv_heads) {
  const int64_t tiles_of_work_tile = kPrefillRows / tile_rows;
  return (num_row_tiles + num_reqs * (tiles_of_work_tile - 1)) / tiles_of_work_tile * num_kv_heads;
}

}  // namespace attend::kernels::cuda::sm90
