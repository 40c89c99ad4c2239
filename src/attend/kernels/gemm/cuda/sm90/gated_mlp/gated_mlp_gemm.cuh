// Gated-MLP GEMM on sm_90a: out = silu(gate) * up, [gate | up] = x W^T, for up to 256 rows of x, with TMA and
// wgmma in persistent clusters of two CTAs. x is operand A and W is B, so that a tile may have any multiple
// of 16 rows of W, and a thread has gate and up of the same features.
//
//   tile        128 rows of x x 8 kPairs features (kPairs = 6, 8, 10, 12 or 14), K-blocks of 64
//   warps       2 consumer warpgroups multiply 64 rows of x each (wgmma m64n(16 kPairs)k16); in a producer
//               warpgroup, one thread loads W and one loads x with TMA. Data that both CTAs of the cluster
//               read is multicast, half by each
//   registers   240 per consumer thread, 24 per producer thread (setmaxnreg); launched with 168
//   shared      8 (kPairs = 6) to 5 (kPairs = 14) stages, and 1 KB for mbarriers
//   bytes       per stage: 16 KB of x, 2 kPairs KB of W. Up to 128 rows x is multicast, above that W
//   bound       reading W; tensor cores toward 256 rows
#pragma once

#include "attend/base/error.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/sm90/cta_roles.cuh"
#include "attend/kernels/gemm/cuda/sm90/gated_mlp/gated_mlp_gemm_kernel.h"
#include "attend/kernels/gemm/cuda/sm90/k_block_product.cuh"

namespace attend::kernels::cuda::sm90 {

// Tile of a CTA, and its stages with a K-block of x and one of W each.
template <int kPairs_>
struct GatedMlpGemmConfig {
  static constexpr int kPairs = kPairs_;
  static constexpr int kWarpgroups = kGatedMlpRows / 64, kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 128 * (kWarpgroups + 1);
  // Per thread. A launch distributes the 65,536 registers of an SM evenly over all threads.
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
  static_assert(128 * (kWarpgroups * kConsumerRegisters + kProducerRegisters) <=
                kThreads * (65536 / kThreads / 8 * 8));
  static constexpr int kRowBytes = 2 * kGatedMlpBlockK;
  static constexpr int kXBytes = kGatedMlpRows * kRowBytes, kWeightBytes = 16 * kPairs * kRowBytes;
  static constexpr int kStageBytes = kXBytes + kWeightBytes;
  static constexpr int kBarrierBytes = 1024, kMaxSharedBytes = 227 << 10;
  static constexpr int kStages = (kMaxSharedBytes - kBarrierBytes) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kBarrierBytes;
  using Stages = KBlockStages<kStages, kXBytes, kWeightBytes>;
  static constexpr int kAccumulators = 8 * kPairs;  // per thread
  static_assert(kStageBytes % 1024 == 0 && 16 * kStages <= kBarrierBytes);
  static_assert(kPairs % 2 == 0, "halves of a multicast, and pairs that are written together");
};

template <class T, class Config>
class GatedMlpGemmCta {
  using Accumulators = float[Config::kAccumulators];
  static constexpr uint32_t kAllRanks = (1 << kGatedMlpClusterSize) - 1;

 public:
  __device__ __forceinline__ GatedMlpGemmCta(const GatedMlpGemmParams& params, const char* shared)
      : params_(params),
        stages_{ptx::shared_address(shared)},
        rank_(ptx::cluster_rank()),
        first_row_(params.multicasts_weights ? rank_ * kGatedMlpRows : 0) {
    const int cta = static_cast<int>(blockIdx.x), num_ctas = static_cast<int>(gridDim.x);
    const int tiles_at_once = params.multicasts_weights ? 1 : kGatedMlpClusterSize;
    first_tile_ = cta / (kGatedMlpClusterSize / tiles_at_once);
    tile_step_ = num_ctas / (kGatedMlpClusterSize / tiles_at_once);
    // CTAs of a cluster have the same number of tiles. The last tile may be past the end of the weight.
    tiles_end_ = (params.num_tiles + tiles_at_once - 1) / tiles_at_once * tiles_at_once;
  }

  __device__ __forceinline__ void run() const {
    begin_cta</*kCluster=*/true>([&] {
      // Arrivals of the producers of x and of W.
      stages_.init_barriers(2, Config::kConsumerWarps * kGatedMlpClusterSize);
    });
    run_roles<Config>(
        [&](int warpgroup) {
          wait_for_inputs();
          consume(warpgroup);
        },
        [&] { produce_weights(); }, [&] { produce_x(); });
  }

 private:
  // Calls copy(stage, tile, first input) for all K-blocks of all tiles, each when both CTAs have released the
  // stage.
  template <class Copy>
  __device__ __forceinline__ void fill_stages(int num_bytes, const Copy& copy) const {
    PipelineState state;
    for (int tile = first_tile_; tile < tiles_end_; tile += tile_step_)
      for (int k_block = 0; k_block < params_.num_k_blocks; ++k_block) {
        ptx::mbarrier_wait(stages_.empty(state.stage), state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(stages_.full(state.stage), num_bytes);
        copy(state.stage, tile, k_block * kGatedMlpBlockK);
        state.advance(Config::kStages);
      }
  }

  // Producer of W, which does not depend on the previous kernel.
  __device__ __forceinline__ void produce_weights() const {
    const uint64_t policy = ptx::createpolicy_evict_first();
    fill_stages(Config::kWeightBytes, [&](int stage, int tile, int input) {
      constexpr int kPairsPerCta = Config::kPairs / kGatedMlpClusterSize;
      const int first_pair = tile * Config::kPairs;
      if (params_.multicasts_weights)
        ptx::cp_async_bulk_tensor_multicast(
            stages_.weights_at(stage) + rank_ * (Config::kWeightBytes / kGatedMlpClusterSize),
            &params_.weight, input, 0, 0, first_pair + rank_ * kPairsPerCta, stages_.full(stage), kAllRanks,
            policy);
      else
        ptx::cp_async_bulk_tensor(stages_.weights_at(stage), &params_.weight, input, 0, 0, first_pair,
                                  stages_.full(stage), policy);
    });
  }

  // Producer of x.
  __device__ __forceinline__ void produce_x() const {
    const uint64_t policy = ptx::createpolicy_evict_last();
    ptx::griddepcontrol_wait();
    fill_stages(Config::kXBytes, [&](int stage, int, int input) {
      if (params_.multicasts_weights)
        ptx::cp_async_bulk_tensor(stages_.x_at(stage), &params_.x, input, first_row_, stages_.full(stage),
                                  policy);
      else
        ptx::cp_async_bulk_tensor_multicast(
            stages_.x_at(stage) + rank_ * (Config::kXBytes / kGatedMlpClusterSize), &params_.x, input,
            rank_ * (kGatedMlpRows / kGatedMlpClusterSize), stages_.full(stage), kAllRanks, policy);
    });
  }

  __device__ __forceinline__ void release(int stage) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < kGatedMlpClusterSize)
      ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(stages_.empty(stage), lane));
  }

  __device__ __forceinline__ void consume(int warpgroup) const {
    PipelineState state;
    const int num_tiles = (tiles_end_ - first_tile_ + tile_step_ - 1) / tile_step_;
    // Stages that are not filled again are not released: the cluster's other CTA may have exited.
    int releases_left = num_tiles * params_.num_k_blocks - Config::kStages, last_stage = 0;
    for (int tile = first_tile_; tile < tiles_end_; tile += tile_step_) {
      Accumulators accumulators;
      for (int k_block = 0; k_block < params_.num_k_blocks; ++k_block) {
        ptx::mbarrier_wait(stages_.full(state.stage), state.parity);
        const uint64_t x =
            ptx::smem_descriptor(stages_.x_at(state.stage) + warpgroup * 64 * Config::kRowBytes);
        const uint64_t weights = ptx::smem_descriptor(stages_.weights_at(state.stage));
        multiply_k_block<T>(accumulators, x, weights, k_block > 0);
        // The previous K-block's wgmma has finished, so its stage is free.
        ptx::wgmma_wait_group<1>();
        if (k_block > 0 && releases_left-- > 0) release(last_stage);
        last_stage = state.stage;
        state.advance(Config::kStages);
      }
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(accumulators);
      if (releases_left-- > 0) release(last_stage);
      write(tile, first_row_ + warpgroup * 64, accumulators);
    }
  }

  // Writes a tile. For each pair, a thread has features 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of its
  // warp's 16 and of the row eight below (wgmma_products.cuh.in). For two pairs, neighboring lanes exchange
  // values, so that one writes four features of the first and the other four of the second: whole sectors of
  // 32 bytes.
  __device__ __forceinline__ void write(int tile, int first_row, const Accumulators& accumulators) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int lane_first_row = first_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const bool odd = lane % 2 == 1;
#pragma unroll
    for (int pair = 0; pair < Config::kPairs; pair += 2) {
      const int first_pair = tile * Config::kPairs + pair;
      const int feature = (first_pair + (odd ? 1 : 0)) * 8 + lane % 4 / 2 * 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane_first_row + 8 * half;
        const uint32_t first = gated(first_pair, accumulators + 8 * pair + 2 * half);
        const uint32_t second = gated(first_pair + 1, accumulators + 8 * (pair + 1) + 2 * half);
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
        if (row >= params_.num_rows || feature >= params_.out_features) continue;
        *reinterpret_cast<uint2*>(static_cast<T*>(params_.out) + row * params_.out_stride + feature) =
            odd ? make_uint2(got, second) : make_uint2(first, got);
      }
    }
  }

  // Returns two features of a pair, computed from their gates, sums[0] and [1], and ups, sums[4] and [5].
  __device__ __forceinline__ uint32_t gated(int pair, const float* accumulators) const {
    float gate[2] = {accumulators[0], accumulators[1]}, up[2] = {accumulators[4], accumulators[5]};
    const int feature = pair * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
    if (const DeviceVector& bias = params_.bias; bias.data != nullptr && feature < params_.out_features)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        gate[i] += load_element(bias.data, feature + i, bias.element);
        up[i] += load_element(bias.data, params_.out_features + feature + i, bias.element);
      }
    T results[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) results[i] = T(__fdividef(gate[i], 1.0f + __expf(-gate[i])) * up[i]);
    return *reinterpret_cast<const uint32_t*>(results);
  }

  const GatedMlpGemmParams& params_;
  const typename Config::Stages stages_;
  const int rank_, first_row_;
  int first_tile_, tile_step_, tiles_end_;
};

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gated_mlp_gemm_kernel(const __grid_constant__ GatedMlpGemmParams params) {
  extern __shared__ __align__(1024) char shared[];
  GatedMlpGemmCta<T, Config>(params, shared).run();
}

template <class T, class Config>
void launch_gated_mlp_gemm_instance(const GatedMlpGemmParams& params, int num_clusters, void* stream) {
  constexpr auto kKernel = gated_mlp_gemm_kernel<T, Config>;
  allow_shared_memory<kKernel>(Config::kSharedBytes, "linear: shared memory");
  launch_dependent<GatedMlpGemmParams>(kKernel, static_cast<unsigned>(num_clusters * kGatedMlpClusterSize),
                                       Config::kThreads, static_cast<size_t>(Config::kSharedBytes), stream,
                                       params, "linear", kGatedMlpClusterSize);
}

template <class T, size_t kIndex = 0>
void launch_gated_mlp_gemm(const GatedMlpGemmParams& params, const GatedMlpGemmShape& shape, void* stream) {
  if constexpr (kIndex == kGatedMlpTilePairs.size()) {
    fail(ErrorCode::kInvalidArgument, "gated-MLP GEMM: tiles of ", shape.tile_pairs,
         " pairs: no kernel for this height");
  } else {
    if (shape.tile_pairs != kGatedMlpTilePairs[kIndex])
      return launch_gated_mlp_gemm<T, kIndex + 1>(params, shape, stream);
    launch_gated_mlp_gemm_instance<T, GatedMlpGemmConfig<kGatedMlpTilePairs[kIndex]>>(
        params, shape.num_clusters, stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
