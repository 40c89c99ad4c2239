// Weights and rows of x on their way through shared memory.
#pragma once

#include <cstdint>

#include "attend/kernels/cuda/ptx/copy.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/cuda/sm90/dense_kernel.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kRowBytes = 128;           // of a chunk
inline constexpr int kSharedBytes = 227 << 10;  // that a CTA of sm_90 can have
inline constexpr int kSwizzleBytes = 1024;      // what slots are aligned to

// The first unit of a CTA's share; that of the CTA after the last one is the number of units.
__device__ inline int share_begin(const DenseShares& shares, int cta) {
  return static_cast<int>(int64_t{shares.num_tiles} * shares.num_chunks * cta / shares.num_ctas);
}
__device__ inline int cta_of_unit(const DenseShares& shares, int unit) {
  return static_cast<int>(((int64_t{unit} + 1) * shares.num_ctas - 1) /
                          (int64_t{shares.num_tiles} * shares.num_chunks));
}

// A place in a ring of slots. Each turn round flips the parity of its barriers' phases.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int num_slots) {
    if (++slot < num_slots) return;
    slot = 0;
    parity ^= 1;
  }
};

// Two rings, since weights come from far and x from L2: a slot of the one holds a chunk of the tile's rows of
// weights, one of the other a chunk of x. Layout: x, weights, stage of the results, barriers.
template <int kWarpgroups, int kTokens>
struct DenseRing {
  static constexpr int kWeightBytes = kWarpgroups * kWarpgroupRows * kRowBytes;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  static constexpr int kTokenSlots = kTokens <= 64 ? 8 : kTokens <= 128 ? 4 : 3;
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  // A warp turns its results round here: 16 tokens by 16 features or 32 by 8, rows padded by four floats.
  static constexpr int kStageFloats = 384;
  static constexpr int kStageBytes = kConsumerWarps * kStageFloats * static_cast<int>(sizeof(float));
  static constexpr int kBarrierBytes = 512;  // with a word in the end that consumers share
  static constexpr int kMaxWeightSlots =
      (kSharedBytes - kTokenSlots * kTokenBytes - kStageBytes - kBarrierBytes) / kWeightBytes < 16
          ? (kSharedBytes - kTokenSlots * kTokenBytes - kStageBytes - kBarrierBytes) / kWeightBytes
          : 16;
  static_assert(2 * 8 * (kMaxWeightSlots + kTokenSlots) < kBarrierBytes);

  static constexpr __host__ __device__ int stage_offset(int weight_slots) {
    return kTokenSlots * kTokenBytes + weight_slots * kWeightBytes;
  }
  static constexpr __host__ __device__ int shared_bytes(int weight_slots) {
    return stage_offset(weight_slots) + kStageBytes + kBarrierBytes;
  }

  const DenseParams& params;
  uint32_t tokens, weights, barriers;  // in the shared window

  __device__ __forceinline__ DenseRing(const DenseParams& dense, const char* shared)
      : params(dense),
        tokens(ptx::shared_address(shared)),
        weights(tokens + kTokenSlots * kTokenBytes),
        barriers(tokens + stage_offset(dense.weight_slots) + kStageBytes) {}

  __device__ __forceinline__ uint32_t weights_full(int slot) const { return barriers + 8 * slot; }
  __device__ __forceinline__ uint32_t weights_empty(int slot) const {
    return weights_full(params.weight_slots + slot);
  }
  __device__ __forceinline__ uint32_t tokens_full(int slot) const {
    return weights_full(2 * params.weight_slots + slot);
  }
  __device__ __forceinline__ uint32_t tokens_empty(int slot) const { return tokens_full(kTokenSlots + slot); }
  __device__ __forceinline__ uint32_t weights_at(int slot) const { return weights + slot * kWeightBytes; }
  __device__ __forceinline__ uint32_t tokens_at(int slot) const { return tokens + slot * kTokenBytes; }

  // By one thread.
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < params.weight_slots; ++slot) {
      ptx::init_barrier(weights_full(slot), 1);
      ptx::init_barrier(weights_empty(slot), kConsumerWarps);
    }
    for (int slot = 0; slot < kTokenSlots; ++slot) {
      ptx::init_barrier(tokens_full(slot), 1);
      ptx::init_barrier(tokens_empty(slot), kConsumerWarps);
    }
    ptx::publish_barriers();
  }

  // By one thread: the weights of units [begin, end). They do not depend on the kernel before.
  __device__ __forceinline__ void copy_weights(int begin, int end) const {
    constexpr int kTilePairs = kWarpgroups * kWarpgroupRows / kPairRows;
    const uint64_t policy = ptx::evict_first();
    const int num_chunks = params.shares.num_chunks;
    int pair = begin / num_chunks * kTilePairs, chunk = begin % num_chunks;
    RingPlace place;
    for (int unit = begin; unit < end; ++unit) {
      ptx::wait_for_phase(weights_empty(place.slot), place.parity ^ 1);
      const uint32_t full = weights_full(place.slot);
      ptx::arrive_and_expect(full, kWeightBytes);
      ptx::copy_box(weights_at(place.slot), &params.weight, chunk * kChunkElements, 0, 0, pair, full, policy);
      place.advance(params.weight_slots);
      if (++chunk == num_chunks) {
        chunk = 0;
        pair += kTilePairs;
      }
    }
  }

  // By one thread: what those units multiply.
  __device__ __forceinline__ void copy_tokens(int begin, int end) const {
    const uint64_t policy = ptx::evict_last();
    const int num_chunks = params.shares.num_chunks;
    int chunk = begin % num_chunks;
    ptx::wait_for_previous_kernel();
    RingPlace place;
    for (int unit = begin; unit < end; ++unit) {
      ptx::wait_for_phase(tokens_empty(place.slot), place.parity ^ 1);
      const uint32_t full = tokens_full(place.slot);
      ptx::arrive_and_expect(full, kTokenBytes);
      ptx::copy_box(tokens_at(place.slot), &params.x, chunk * kChunkElements, 0, full, policy);
      place.advance(kTokenSlots);
      chunk = chunk + 1 == num_chunks ? 0 : chunk + 1;
    }
  }
};

}  // namespace attend::kernels::cuda::sm90
