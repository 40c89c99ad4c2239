// Batch-invariant GEMM on sm_90a: out = x W^T, or silu(gate) * up of its halves, for more rows than the
// skinny GEMM supports, with TMA and wgmma. Bit for bit equal to the skinny GEMM of each row: K-blocks are in
// the same order (KBlockOrder), and wgmma adds the products of 16 inputs like mma.sync. NVIDIA does not
// document this; it holds in 24,576 sums of inputs near 1 and of inputs that differ by 2^48.
// linear_invariant_test checks that both kernels agree.
//
//   tile        192 or 128 rows x 32 to 128 features, K-blocks of 64; persistent CTAs
//   warps       3 (2) consumer warpgroups multiply 64 rows of x each (A = x, B = W: wgmma m64n(features)k16);
//               in one producer warpgroup, one thread loads W and one loads x with TMA
//   registers   160 (240) per consumer thread, 24 per producer thread (setmaxnreg); launched with 128 (168)
//   shared      stages of 8 KB per 64 rows and 1 KB per 8 features, 5 to 11 of them; 1 KB for mbarriers
//   bytes       those of a stage. Slices of K with partial sums that fit in registers are loaded together, so
//               that up to 1 KB of a row is read in one go: reading 128 bytes of every KB is slow
//   bound       many rows: tensor cores and the card's power limit. Up to 128 rows: reading W, or the 45
//               bytes per cycle that an SM can load
#pragma once

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_epilogue.cuh"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/cta_roles.cuh"
#include "attend/kernels/gemm/cuda/sm90/k_block_product.cuh"

namespace attend::kernels::cuda::sm90 {

// Output tile of a CTA, and its stages with a K-block of x and one of W each.
template <int kTileRows_, int kTileFeatures_>
struct BatchInvariantGemmConfig {
  static constexpr int kTileRows = kTileRows_, kTileFeatures = kTileFeatures_;
  static constexpr int kWarpgroups = kTileRows / 64, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Per thread. A launch distributes the 65,536 registers of an SM evenly over all threads.
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 240, kProducerRegisters = 24;
  static_assert(128 * (kWarpgroups * kConsumerRegisters + kProducerRegisters) <=
                kThreads * (65536 / kThreads / 8 * 8));
  static constexpr int kXBytes = kTileRows * kRowBytes, kWeightBytes = kTileFeatures * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kWeightBytes;
  static constexpr int kBarrierBytes = 1024, kMaxSharedBytes = 227 << 10;
  static constexpr int kStages = (kMaxSharedBytes - kBarrierBytes) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kBarrierBytes;
  using Stages = KBlockStages<kStages, kXBytes, kWeightBytes>;
  static constexpr int kAccumulators = kTileFeatures / 2;  // per thread
  // Slices with partial sums in registers at the same time, in addition to the totals of the previous slices.
  static constexpr int kMaxSums = kWarpgroups == 3 ? 128 : 168;
  static constexpr int kSlicesAtOnce = kKSlices * kAccumulators <= kMaxSums ? kKSlices
                                       : 5 * kAccumulators <= kMaxSums      ? 4
                                       : 3 * kAccumulators <= kMaxSums      ? 2
                                                                            : 1;
  static_assert(kKSlices % kSlicesAtOnce == 0);
  static_assert(kStageBytes % 1024 == 0 && 16 * kStages <= kBarrierBytes);
};

template <class T, class Config>
class BatchInvariantGemmCta {
  using Accumulators = float[Config::kAccumulators];

 public:
  __device__ __forceinline__ BatchInvariantGemmCta(const BatchInvariantGemmParams& params, const char* shared)
      : params_(params), stages_{ptx::shared_address(shared)} {}

  __device__ __forceinline__ void run() {
    begin_cta</*kCluster=*/false>([&] {
      // Arrivals of the producers of x and of W.
      stages_.init_barriers(2, Config::kConsumerWarps);
    });
    run_roles<Config>(
        [&](int warpgroup) {
          wait_for_inputs();
          consume(warpgroup);
        },
        [&] { produce_weights(); }, [&] { produce_x(); });
  }

 private:
  // First row and feature of a tile.
  struct Origin {
    int row, feature;
  };

  __device__ static int ceil_div(int a, int b) { return (a + b - 1) / b; }
  __device__ int num_row_tiles() const { return ceil_div(params_.num_rows, Config::kTileRows); }
  __device__ int num_feature_tiles() const {
    return ceil_div(params_.num_weight_rows, Config::kTileFeatures);
  }
  __device__ int num_tiles() const { return num_row_tiles() * num_feature_tiles(); }
  __device__ static int first_tile() { return static_cast<int>(blockIdx.x); }
  __device__ static int num_ctas() { return static_cast<int>(gridDim.x); }

  // Rasterization: tiles that run concurrently share x and W in L2. kRowTilesTogether row tiles come first,
  // then the next feature tile. `feature` is a row of W.
  __device__ __forceinline__ Origin tile_origin(int tile) const {
    constexpr int kRowTilesTogether = 8;
    const int group_tiles = kRowTilesTogether * num_feature_tiles();
    const int first_row_tile = tile / group_tiles * kRowTilesTogether;
    const int together = min(kRowTilesTogether, num_row_tiles() - first_row_tile);
    return {.row = (first_row_tile + tile % group_tiles % together) * Config::kTileRows,
            .feature = tile % group_tiles / together * Config::kTileFeatures};
  }

  // Calls copy(stage, origin, first input) for all K-blocks of all tiles when the stage is free: first the
  // K-blocks of kSlicesAtOnce slices, then those of the next slices.
  template <class Copy>
  __device__ __forceinline__ void fill_stages(const Copy& copy) const {
    constexpr int kAtOnce = Config::kSlicesAtOnce;
    PipelineState state;
    for (int tile = first_tile(); tile < num_tiles(); tile += num_ctas()) {
      const Origin origin = tile_origin(tile);
      for (int first = 0; first < kKSlices; first += kAtOnce)
        for (int round = first; round < params_.num_k_blocks; round += kKSlices)
          for (int k_block = round; k_block < min(round + kAtOnce, params_.num_k_blocks); ++k_block) {
            ptx::mbarrier_wait(stages_.empty(state.stage), state.parity ^ 1);
            copy(state.stage, origin, k_block * kBlockK);
            state.advance(Config::kStages);
          }
    }
  }

  // Producer of W, which does not depend on the previous kernel.
  __device__ __forceinline__ void produce_weights() const {
    const uint64_t policy =
        num_row_tiles() > 1 ? ptx::createpolicy_evict_last() : ptx::createpolicy_evict_first();
    fill_stages([&](int stage, const Origin& origin, int input) {
      ptx::mbarrier_arrive_expect_tx(stages_.full(stage), Config::kWeightBytes);
      if (params_.gated)
        ptx::cp_async_bulk_tensor(stages_.weights_at(stage), &params_.weight, input, 0, 0,
                                  origin.feature / kPairRows, stages_.full(stage), policy);
      else
        ptx::cp_async_bulk_tensor(stages_.weights_at(stage), &params_.weight, input, origin.feature,
                                  stages_.full(stage), policy);
    });
  }

  // Producer of x. The last row tile has its own tensor map, since TMA is slower for boxes with rows outside
  // of x. The stale rows of a stage affect only sums that are not written.
  __device__ __forceinline__ void produce_x() const {
    const uint64_t policy = ptx::createpolicy_evict_last();
    ptx::griddepcontrol_wait();
    fill_stages([&](int stage, const Origin& origin, int input) {
      const bool is_last = origin.row + Config::kTileRows >= params_.num_rows;
      ptx::mbarrier_arrive_expect_tx(stages_.full(stage),
                                     is_last ? params_.last_box_rows * kRowBytes : Config::kXBytes);
      ptx::cp_async_bulk_tensor(stages_.x_at(stage), is_last ? &params_.last_x : &params_.x, input,
                                origin.row, stages_.full(stage), policy);
    });
  }

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(stages_.empty(stage));
  }

  __device__ __forceinline__ void consume(int warpgroup) const {
    PipelineState state;
    for (int tile = first_tile(); tile < num_tiles(); tile += num_ctas()) {
      if (tile_origin(tile).row + warpgroup * 64 < params_.num_rows)
        multiply(tile, warpgroup, state);
      else
        skip(state);
    }
  }

  // Advances through the stages without multiplying: for a warpgroup without rows. The stages
  // require its arrivals.
  __device__ __forceinline__ void skip(PipelineState& state) const {
    for (int i = 0; i < params_.num_k_blocks; ++i) {
      ptx::mbarrier_wait(stages_.full(state.stage), state.parity);
      release(state.stage);
      state.advance(Config::kStages);
    }
  }

  __device__ __forceinline__ void multiply(int tile, int warpgroup, PipelineState& state) const {
    constexpr int kAtOnce = Config::kSlicesAtOnce;
    Accumulators partial[kAtOnce], total = {};
#pragma unroll 1
    for (int first = 0; first < min(kKSlices, params_.num_k_blocks); first += kAtOnce) {
      int last_stage = -1;
#pragma unroll 1
      for (int round = first; round < params_.num_k_blocks; round += kKSlices)
#pragma unroll
        for (int slice = 0; slice < kAtOnce; ++slice) {
          if (round + slice >= params_.num_k_blocks) break;
          multiply_k_block(partial[slice], warpgroup, state.stage, state.parity, round > first);
          // The previous K-block's wgmma has finished, so its stage is free.
          ptx::wgmma_wait_group<1>();
          if (last_stage >= 0) release(last_stage);
          last_stage = state.stage;
          state.advance(Config::kStages);
        }
      ptx::wgmma_wait_group<0>();
      release(last_stage);
#pragma unroll
      for (int slice = 0; slice < kAtOnce; ++slice) {
        ptx::fence_operand(partial[slice]);
        if (first + slice >= params_.num_k_blocks) break;
#pragma unroll
        for (int n = 0; n < Config::kAccumulators; ++n) total[n] += partial[slice][n];
      }
    }
    // Recomputed here, since the accumulators need all registers.
    const Origin origin = tile_origin(tile);
    BatchInvariantEpilogue<Config::kTileFeatures>(params_, origin.row, origin.feature).write(total);
  }

  __device__ __forceinline__ void multiply_k_block(Accumulators& sums, int warpgroup, int stage,
                                                   uint32_t parity, bool add) const {
    ptx::mbarrier_wait(stages_.full(stage), parity);
    const uint64_t a = ptx::smem_descriptor(stages_.x_at(stage) + warpgroup * 64 * kRowBytes);
    const uint64_t b = ptx::smem_descriptor(stages_.weights_at(stage));
    sm90::multiply_k_block<T>(sums, a, b, add);
  }

  const BatchInvariantGemmParams& params_;
  const typename Config::Stages stages_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    batch_invariant_gemm_kernel(const __grid_constant__ BatchInvariantGemmParams params) {
  extern __shared__ __align__(1024) char shared[];
  BatchInvariantGemmCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_tile(const BatchInvariantGemmParams& params, int num_ctas, void* stream) {
  constexpr auto kKernel = batch_invariant_gemm_kernel<T, Config>;
  allow_shared_memory<kKernel>(Config::kSharedBytes, "linear: shared memory");
  launch_dependent<BatchInvariantGemmParams>(kKernel, static_cast<unsigned>(num_ctas), Config::kThreads,
                                             Config::kSharedBytes, stream, params, "linear");
}

template <class T, size_t kIndex = 0>
void launch_batch_invariant_gemm(const BatchInvariantGemmParams& params, const BatchInvariantGemmShape& shape,
                                 void* stream) {
  if constexpr (kIndex == kBatchInvariantTiles.size()) {
    fail(ErrorCode::kInvalidArgument, "batch-invariant GEMM: tiles of ", shape.tile.rows, " x ",
         shape.tile.features, ": no kernel for this shape");
  } else {
    constexpr BatchInvariantGemmTile kTile = kBatchInvariantTiles[kIndex];
    if (shape.tile != kTile) return launch_batch_invariant_gemm<T, kIndex + 1>(params, shape, stream);
    launch_tile<T, BatchInvariantGemmConfig<kTile.rows, kTile.features>>(params, shape.num_ctas, stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
