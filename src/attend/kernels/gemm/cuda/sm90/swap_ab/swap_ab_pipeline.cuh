// Pipelines of the swap-AB GEMM: a CTA's range of a layer, its shared memory and its two producers.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_gemm_kernel.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kRowBytes = 128;       // per K-block
inline constexpr int kSwizzleBytes = 1024;  // alignment of stages

inline constexpr int kPairBytes = kPairRows * kRowBytes;

// Warps that add the partial sums of squares under a deferred norm: four, or two if registers are short.
template <int kTokens>
constexpr int kScaleWarps = kTokens > 64 ? 2 : 4;

// Range of a CTA: tiles first_tile, first_tile + num_clusters, ... and, of each, the K-blocks from
// k_block_begin to k_block_end.
struct SwapAbCtaRange {
  int rank, first_tile, num_clusters, k_block_begin, k_block_end;

  __device__ explicit SwapAbCtaRange(const SwapAbGemmParams& params)
      : rank(ptx::cluster_rank()),
        first_tile(static_cast<int>(blockIdx.x) / params.cluster_size),
        num_clusters(static_cast<int>(gridDim.x) / params.cluster_size),
        k_block_begin(params.num_k_blocks * rank / params.cluster_size),
        k_block_end(params.num_k_blocks * (rank + 1) / params.cluster_size) {}
};

// Shared memory and producers. W and x have separate pipelines, since W is loaded from memory and x from L2:
// a stage of one holds a K-block of the tile's rows of W, a stage of the other a K-block of x. Layout: x, W,
// partial sums, subtiles, mbarriers, row scales.
template <int kWarpgroups, int kTokens>
struct SwapAbPipeline {
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  // Partial sums of the cluster's CTAs, and one subtile of 16 features by 16 tokens per warp. Subtile rows
  // are padded by four floats to avoid bank conflicts.
  static constexpr int kPartialSumBytes =
      kWarpgroups * kWarpgroupRows * kTokens * static_cast<int>(sizeof(float));
  static constexpr int kSubtileStride = 20;
  static constexpr int kSubtileBytes = 16 * kSubtileStride * static_cast<int>(sizeof(float));
  static constexpr int kBarrierBytes = 8 * (2 * kMaxWeightStages + 2 * kMaxTokenStages + 3);
  static constexpr int kScaleBytes = kTokens * static_cast<int>(sizeof(float));
  static constexpr int kRestBytes =
      kPartialSumBytes + kConsumerWarps * kSubtileBytes + kBarrierBytes + kScaleBytes;

  // The last warpgroup may read past its rows: into later stages, or partial sums.
  static_assert(kPartialSumBytes >= kWarpgroupRows * kRowBytes);

  static constexpr int shared_bytes(int weight_stages, int tile_pairs, int token_stages) {
    return kRestBytes + weight_stages * tile_pairs * kPairBytes + token_stages * kTokenBytes;
  }

  const SwapAbGemmParams& params;
  const SwapAbCtaRange range;
  uint32_t tokens, weights, partials, subtiles, barriers, scales;  // addresses in the shared window

  __device__ __forceinline__ SwapAbPipeline(const SwapAbGemmParams& gemm, const char* shared)
      : params(gemm),
        range(gemm),
        tokens(ptx::shared_address(shared)),
        weights(tokens + gemm.token_stages * kTokenBytes),
        partials(weights + gemm.weight_stages * gemm.tile_pairs * kPairBytes),
        subtiles(partials + kPartialSumBytes),
        barriers(subtiles + kConsumerWarps * kSubtileBytes),
        scales(barriers + kBarrierBytes) {}

  __device__ __forceinline__ uint32_t barrier(int i) const { return barriers + 8 * i; }
  // Completes when the partial sums of all CTAs of the cluster have arrived; partials_empty() when all CTAs
  // have read those from this one.
  __device__ __forceinline__ uint32_t partials_full() const { return barrier(0); }
  __device__ __forceinline__ uint32_t partials_empty() const { return barrier(1); }
  // Completes once, when all row scales are available.
  __device__ __forceinline__ uint32_t scales_full() const { return barrier(2); }
  __device__ __forceinline__ uint32_t tokens_full(int stage) const { return barrier(3 + stage); }
  __device__ __forceinline__ uint32_t tokens_empty(int stage) const {
    return barrier(3 + params.token_stages + stage);
  }
  __device__ __forceinline__ uint32_t weights_full(int stage) const {
    return barrier(3 + 2 * params.token_stages + stage);
  }
  __device__ __forceinline__ uint32_t weights_empty(int stage) const {
    return weights_full(params.weight_stages + stage);
  }
  __device__ __forceinline__ uint32_t weights_at(int stage) const {
    return weights + stage * params.tile_pairs * kPairBytes;
  }
  __device__ __forceinline__ uint32_t tokens_at(int stage) const { return tokens + stage * kTokenBytes; }

  // Called by one thread.
  __device__ __forceinline__ void init() const {
    ptx::mbarrier_init(partials_full(), 1);
    ptx::mbarrier_init(partials_empty(), params.cluster_size * kConsumerWarps);
    ptx::mbarrier_init(scales_full(), kScaleWarps<kTokens>);
    for (int stage = 0; stage < params.token_stages; ++stage) {
      ptx::mbarrier_init(tokens_full(stage), 1);
      ptx::mbarrier_init(tokens_empty(stage), kConsumerWarps);
    }
    for (int stage = 0; stage < params.weight_stages; ++stage) {
      ptx::mbarrier_init(weights_full(stage), 1);
      ptx::mbarrier_init(weights_empty(stage), kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }

  // Producer of W, one thread. W does not depend on the previous kernel. kTiles: tiles that a CTA computes
  // together.
  template <int kTiles = 1>
  __device__ __forceinline__ void produce_weights() const {
    const uint64_t policy = ptx::createpolicy_evict_first();
    PipelineState state;
    for (int tile = range.first_tile; tile * kTiles < params.num_tiles; tile += range.num_clusters)
      for (int k_block = range.k_block_begin; k_block < range.k_block_end; ++k_block)
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          ptx::mbarrier_wait(weights_empty(state.stage), state.parity ^ 1);
          const uint32_t full = weights_full(state.stage);
          ptx::mbarrier_arrive_expect_tx(full, params.tile_pairs * kPairBytes);
          ptx::cp_async_bulk_tensor(weights_at(state.stage), &params.weight, k_block * kBlockK, 0, 0,
                                    (tile * kTiles + i) * params.tile_pairs, full, policy);
          state.advance(params.weight_stages);
        }
  }

  // Producer of x, one thread. kTokenBlocks: K-blocks of x per K-block of W; a CTA's range is a multiple of
  // it.
  template <int kTokenBlocks = 1, int kTiles = 1>
  __device__ __forceinline__ void produce_tokens() const {
    const uint64_t policy = ptx::createpolicy_evict_last();
    ptx::griddepcontrol_wait();
    PipelineState state;
    for (int tile = range.first_tile; tile * kTiles < params.num_tiles; tile += range.num_clusters)
      for (int k_block = kTokenBlocks * range.k_block_begin; k_block < kTokenBlocks * range.k_block_end;
           ++k_block) {
        ptx::mbarrier_wait(tokens_empty(state.stage), state.parity ^ 1);
        const uint32_t full = tokens_full(state.stage);
        ptx::mbarrier_arrive_expect_tx(full, kTokenBytes);
        ptx::cp_async_bulk_tensor(tokens_at(state.stage), &params.x, k_block * kBlockK, 0, full, policy);
        state.advance(params.token_stages);
      }
  }
};

}  // namespace attend::kernels::cuda::sm90
