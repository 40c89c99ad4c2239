// Selects the kernel of one dtype and head dims that a plan requires.
#pragma once

#include <algorithm>

#include "attend/kernels/attention/cuda/common/shared_carveout.cuh"
#include "attend/kernels/attention/cuda/sm80/attention.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"

namespace attend::kernels::cuda::sm80 {

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kInlinePlan,
          bool kClusters>
void launch_tile(const AttentionParams& params, int num_row_tiles, void* stream) {
  constexpr auto kKernel =
      attention_kernel<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kInlinePlan, kClusters>;
  constexpr int kSharedBytes = AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits,
                                            kInlinePlan, kClusters>::kSharedBytes;
  static_assert(
      kSharedBytes ==
      config_shared_bytes<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows, kFixedSplits, kClusters>());
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  // Fixed splits: the number of CTAs is limited by the accumulator storage.
  if (kFixedSplits)
    num_row_tiles = std::min(num_row_tiles, std::max(1, params.plan.num_ctas / params.num_kv_heads));
  constexpr int kCtasPerPlannedCta = kClusters ? kClusterSize : 1;
  const dim3 grid =
      params.plan.streamed
          ? dim3(static_cast<unsigned>(params.plan.num_ctas * kCtasPerPlannedCta))
          : dim3(static_cast<unsigned>(num_row_tiles), static_cast<unsigned>(params.num_kv_heads));
  constexpr int kThreads = TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kThreads;
  launch_dependent<AttentionParams>(kKernel, grid, kThreads, kSharedBytes, stream, params, "attention",
                                    kCtasPerPlannedCta, shared_carveout(params.plan, kSharedBytes));
}

// Instances of one dtype and head dims for all tile heights. A plan never has 8 to 32 rows with fixed splits,
// nor more rows than max_tile_rows(); CTAs derive it for up to 64 rows. Only decode uses clusters.
template <Element kElement, int kHeadDimQk, int kHeadDimV>
void launch_instance(const AttentionParams& params, int num_row_tiles, void* stream) {
  const PlanView& plan = params.plan;
  const auto
      launch = [&]<int kTileRows, bool kFixedSplits, bool kInlinePlan = false, bool kClusters = false>() {
    return launch_tile<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kInlinePlan, kClusters>(
        params, num_row_tiles, stream);
  };
  const auto launch_planned = [&]<int kTileRows, bool kClusters = false>() {
    plan.inline_plan ? launch.template operator()<kTileRows, false, true, kClusters>()
                     : launch.template operator()<kTileRows, false, false, kClusters>();
  };
  const bool fixed_splits = plan.split_accumulators != nullptr;
  if (plan.tile_rows == kKeyMajorRows)
    return plan.cluster_size > 1 ? launch_planned.template operator()<kKeyMajorRows, true>()
                                 : launch_planned.template operator()<kKeyMajorRows>();
  if (plan.tile_rows == 16)
    return plan.cluster_size > 1 ? launch_planned.template operator()<16, true>()
                                 : launch_planned.template operator()<16>();
  if constexpr (max_tile_rows(kHeadDimV) == 128) {
    if (plan.tile_rows == 32)
      return plan.cluster_size > 1 ? launch_planned.template operator()<32, true>()
                                   : launch_planned.template operator()<32>();
    if (plan.tile_rows == 128)
      return fixed_splits ? launch.template operator()<128, true>()
                          : launch.template operator()<128, false>();
  }
  fixed_splits ? launch.template operator()<64, true>() : launch_planned.template operator()<64>();
}

}  // namespace attend::kernels::cuda::sm80
