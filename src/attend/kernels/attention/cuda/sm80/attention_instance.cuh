// The launch function of one instance, over all its tile heights.
#pragma once

#include <algorithm>

#include "attend/kernels/attention/cuda/sm80/attention_kernel.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/common/cuda/launch.cuh"

namespace attend::kernels::cuda::sm80 {

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kPlans>
void launch_tile(const AttentionParams& params, int num_row_tiles, void* stream) {
  constexpr auto kKernel = attention_kernel<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kPlans>;
  constexpr int kSharedBytes =
      AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kPlans>::kSharedBytes;
  static_assert(kSharedBytes ==
                tile_shared_bytes<kHeadDimQk, kHeadDimV>(is_fp8(kElement), kTileRows, kFixedSplits));
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  // Fixed splits: no more CTAs than there are banks.
  if (kFixedSplits)
    num_row_tiles = std::min(num_row_tiles, std::max(1, params.plan.num_ctas / params.num_kv_heads));
  const dim3 grid = params.plan.streamed ? dim3(static_cast<unsigned>(params.plan.num_ctas))
                                         : dim3(static_cast<unsigned>(num_row_tiles),
                                                static_cast<unsigned>(params.num_kv_heads));
  constexpr int kThreads = TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kThreads;
  launch_dependent<AttentionParams>(kKernel, grid, kThreads, kSharedBytes, stream, params, "attention");
}

// The plan never has 16 rows with fixed splits, nor more rows than max_tile_rows(); CTAs derive it for up to
// 64 rows.
template <Element kElement, int kHeadDimQk, int kHeadDimV>
void launch_instance(const AttentionParams& params, int num_row_tiles, void* stream) {
  const auto launch = [&]<int kTileRows, bool kFixedSplits, bool kPlans = false>() {
    return launch_tile<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kPlans>(
        params, num_row_tiles, stream);
  };
  const bool fixed_splits = params.plan.split_bank != nullptr;
  if (params.plan.ctas_plan)
    return params.plan.tile_rows == 16 ? launch.template operator()<16, false, true>()
                                       : launch.template operator()<64, false, true>();
  if (params.plan.tile_rows == 16) return launch.template operator()<16, false>();
  if constexpr (max_tile_rows(kHeadDimV) == 128)
    if (params.plan.tile_rows == 128)
      return fixed_splits ? launch.template operator()<128, true>()
                          : launch.template operator()<128, false>();
  return fixed_splits ? launch.template operator()<64, true>() : launch.template operator()<64, false>();
}

}  // namespace attend::kernels::cuda::sm80
