// The launch function of one instance, over all its tile heights.
#pragma once

#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/sm80/attention_kernel.cuh"
#include "attend/kernels/cuda/sm80/attention_launch.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda::sm80 {

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows>
void launch_tile(const AttentionParams& params, int num_row_tiles, void* stream) {
  const auto kernel = attention_kernel<kElement, kHeadDimQk, kHeadDimV, kTileRows>;
  constexpr int kSharedBytes = AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows>::kSharedBytes;
  attend::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                      "attention: shared memory");
  const dim3 grid = params.plan.streamed ? dim3(static_cast<unsigned>(params.plan.num_ctas))
                                         : dim3(static_cast<unsigned>(num_row_tiles),
                                                static_cast<unsigned>(params.num_kv_heads));
  constexpr int kThreads = TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kThreads;
  launch_dependent<AttentionParams>(kernel, grid, kThreads, kSharedBytes, stream, params, "attention");
}

template <Element kElement, int kHeadDimQk, int kHeadDimV>
void launch_instance(const AttentionParams& params, int num_row_tiles, void* stream) {
  switch (params.plan.tile_rows) {
    case 16:
      return launch_tile<kElement, kHeadDimQk, kHeadDimV, 16>(params, num_row_tiles, stream);
    case 64:
      return launch_tile<kElement, kHeadDimQk, kHeadDimV, 64>(params, num_row_tiles, stream);
    default:
      if constexpr (max_tile_rows(kHeadDimV) == 128)
        launch_tile<kElement, kHeadDimQk, kHeadDimV, 128>(params, num_row_tiles, stream);
  }
}

}  // namespace attend::kernels::cuda::sm80
