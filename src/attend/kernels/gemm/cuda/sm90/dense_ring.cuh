// Weights and rows of x on their way through shared memory.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/sm90/ring_place.cuh"
#include "attend/kernels/gemm/cuda/sm90/dense_kernel.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kRowBytes = 128;       // of a chunk
inline constexpr int kSwizzleBytes = 1024;  // what slots are aligned to

inline constexpr int kPairBytes = kPairRows * kRowBytes;

// Warps that add the squares of rows whose norm was begun: four, but for registers.
template <int kTokens>
constexpr int kScaleWarps = kTokens > 64 ? 2 : 4;

// A CTA's part of a layer: tiles first_tile, first_tile + num_clusters, ... and of each of them the chunks
// [chunk_begin, chunk_end).
struct DenseShare {
  int rank, first_tile, num_clusters, chunk_begin, chunk_end;

  __device__ explicit DenseShare(const DenseParams& params)
      : rank(ptx::cluster_rank()),
        first_tile(static_cast<int>(blockIdx.x) / params.cluster_size),
        num_clusters(static_cast<int>(gridDim.x) / params.cluster_size),
        chunk_begin(params.num_chunks * rank / params.cluster_size),
        chunk_end(params.num_chunks * (rank + 1) / params.cluster_size) {}
};

// Two rings, since weights come from far and x from L2: a slot of the one holds a chunk of the tile's rows of
// weights, one of the other a chunk of x. Layout: x, weights, what DenseSums keeps, barriers, scales of the
// rows.
template <int kWarpgroups, int kTokens>
struct DenseRing {
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  // Sums of the cluster's CTAs, and a square of 16 features by 16 tokens a warp, rows padded by four floats.
  static constexpr int kSumBytes = kWarpgroups * kWarpgroupRows * kTokens * static_cast<int>(sizeof(float));
  static constexpr int kSquareStride = 20;
  static constexpr int kSquareBytes = 16 * kSquareStride * static_cast<int>(sizeof(float));
  static constexpr int kBarrierBytes = 8 * (2 * kMaxWeightSlots + 2 * kMaxTokenSlots + 3);
  static constexpr int kScaleBytes = kTokens * static_cast<int>(sizeof(float));
  static constexpr int kRestBytes = kSumBytes + kConsumerWarps * kSquareBytes + kBarrierBytes + kScaleBytes;

  // What the last warpgroup reads beyond its rows are the slots after, or sums.
  static_assert(kSumBytes >= kWarpgroupRows * kRowBytes);

  static constexpr int shared_bytes(int weight_slots, int tile_pairs, int token_slots) {
    return kRestBytes + weight_slots * tile_pairs * kPairBytes + token_slots * kTokenBytes;
  }

  const DenseParams& params;
  const DenseShare share;
  uint32_t tokens, weights, sums, squares, barriers, scales;  // in the shared window

  __device__ __forceinline__ DenseRing(const DenseParams& dense, const char* shared)
      : params(dense),
        share(dense),
        tokens(ptx::shared_address(shared)),
        weights(tokens + dense.token_slots * kTokenBytes),
        sums(weights + dense.weight_slots * dense.tile_pairs * kPairBytes),
        squares(sums + kSumBytes),
        barriers(squares + kConsumerWarps * kSquareBytes),
        scales(barriers + kBarrierBytes) {}

  __device__ __forceinline__ uint32_t barrier(int i) const { return barriers + 8 * i; }
  // When the sums of all CTAs of the cluster have come, and when all have read those from this one.
  __device__ __forceinline__ uint32_t sums_full() const { return barrier(0); }
  __device__ __forceinline__ uint32_t sums_empty() const { return barrier(1); }
  // When all rows' scales are there; once.
  __device__ __forceinline__ uint32_t scales_full() const { return barrier(2); }
  __device__ __forceinline__ uint32_t tokens_full(int slot) const { return barrier(3 + slot); }
  __device__ __forceinline__ uint32_t tokens_empty(int slot) const {
    return barrier(3 + params.token_slots + slot);
  }
  __device__ __forceinline__ uint32_t weights_full(int slot) const {
    return barrier(3 + 2 * params.token_slots + slot);
  }
  __device__ __forceinline__ uint32_t weights_empty(int slot) const {
    return weights_full(params.weight_slots + slot);
  }
  __device__ __forceinline__ uint32_t weights_at(int slot) const {
    return weights + slot * params.tile_pairs * kPairBytes;
  }
  __device__ __forceinline__ uint32_t tokens_at(int slot) const { return tokens + slot * kTokenBytes; }

  // By one thread.
  __device__ __forceinline__ void init() const {
    ptx::init_barrier(sums_full(), 1);
    ptx::init_barrier(sums_empty(), params.cluster_size * kConsumerWarps);
    ptx::init_barrier(scales_full(), kScaleWarps<kTokens>);
    for (int slot = 0; slot < params.token_slots; ++slot) {
      ptx::init_barrier(tokens_full(slot), 1);
      ptx::init_barrier(tokens_empty(slot), kConsumerWarps);
    }
    for (int slot = 0; slot < params.weight_slots; ++slot) {
      ptx::init_barrier(weights_full(slot), 1);
      ptx::init_barrier(weights_empty(slot), kConsumerWarps);
    }
    ptx::publish_barriers();
  }

  // By one thread. Weights do not depend on the kernel before.
  __device__ __forceinline__ void copy_weights() const {
    const uint64_t policy = ptx::evict_first();
    RingPlace place;
    for (int tile = share.first_tile; tile < params.num_tiles; tile += share.num_clusters)
      for (int chunk = share.chunk_begin; chunk < share.chunk_end; ++chunk) {
        ptx::wait_for_phase(weights_empty(place.slot), place.parity ^ 1);
        const uint32_t full = weights_full(place.slot);
        ptx::arrive_and_expect(full, params.tile_pairs * kPairBytes);
        ptx::copy_box(weights_at(place.slot), &params.weight, chunk * kChunkElements, 0, 0,
                      tile * params.tile_pairs, full, policy);
        place.advance(params.weight_slots);
      }
  }

  // By one thread: what those weights are multiplied with.
  __device__ __forceinline__ void copy_tokens() const {
    const uint64_t policy = ptx::evict_last();
    ptx::wait_for_previous_kernel();
    RingPlace place;
    for (int tile = share.first_tile; tile < params.num_tiles; tile += share.num_clusters)
      for (int chunk = share.chunk_begin; chunk < share.chunk_end; ++chunk) {
        ptx::wait_for_phase(tokens_empty(place.slot), place.parity ^ 1);
        const uint32_t full = tokens_full(place.slot);
        ptx::arrive_and_expect(full, kTokenBytes);
        ptx::copy_box(tokens_at(place.slot), &params.x, chunk * kChunkElements, 0, full, policy);
        place.advance(params.token_slots);
      }
  }
};

}  // namespace attend::kernels::cuda::sm90
