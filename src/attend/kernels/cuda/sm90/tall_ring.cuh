// Weights and rows of x of tall tiles on their way through shared memory.
#pragma once

#include <climits>
#include <cstdint>

#include "attend/kernels/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/cuda/sm90/dense_ring.cuh"
#include "attend/kernels/cuda/sm90/tall_kernel.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kCopyWarps = 4;
inline constexpr int kTallBarrierBytes = 8 * (2 * 2 * kMaxTallSlots + 1);

// Bytes of slots.
__host__ __device__ inline int token_slot_bytes(const TallParams& params) {
  return params.box_rows * kRowBytes;
}
__host__ __device__ inline int weight_slot_bytes(const TallParams& params) {
  return params.tile_pairs * kPairBytes;
}
// Bytes of a square's sums: 16 rows of x by a pair of weights.
inline constexpr int kSquareBytes = 16 * kPairRows * static_cast<int>(sizeof(float));
// Of shared memory, that the sums and the rows' sums of squares of a tile's parts take.
__host__ __device__ inline int sums_bytes(const TallParams& params) {
  const int num_squares = (params.num_rows + 15) / 16 * params.tile_pairs;
  return (num_squares + params.num_parts - 1) / params.num_parts * params.num_parts * kSquareBytes;
}
__host__ __device__ inline int squared_bytes(const TallParams& params) {
  return params.num_parts * kMaxTallTokens * static_cast<int>(sizeof(float));
}
// Of both rings, whose place those take.
__host__ __device__ inline int rings_bytes(const TallParams& params) {
  const int slots =
      params.token_slots * token_slot_bytes(params) + params.weight_slots * weight_slot_bytes(params);
  const int sums = params.num_parts == 1 ? 0 : sums_bytes(params) + squared_bytes(params);
  return slots > sums ? slots : sums;
}
// Of a CTA's part of the norm's weights.
__host__ __device__ inline int norm_bytes(const TallParams& params) {
  return params.norm == nullptr ? 0
                                : (params.num_chunks + params.num_parts - 1) / params.num_parts * kRowBytes;
}

// A CTA's share of a layer: tiles first_tile, first_tile + num_clusters, ... and of each of them the chunks
// [chunk_begin, chunk_end).
struct TallShare {
  int part, first_tile, num_clusters, chunk_begin, chunk_end;

  __device__ explicit TallShare(const TallParams& params)
      : part(ptx::cluster_rank()),
        first_tile(static_cast<int>(blockIdx.x) / params.num_parts),
        num_clusters(static_cast<int>(gridDim.x) / params.num_parts),
        chunk_begin(params.num_chunks * part / params.num_parts),
        chunk_end(params.num_chunks * (part + 1) / params.num_parts) {}
};

// Slots of shared memory, and barriers that say when a slot's copy has come and when it has been multiplied.
struct SlotRing {
  uint32_t slots, barriers;  // in the shared window
  int num_slots, slot_bytes;

  __device__ __forceinline__ uint32_t at(int slot) const { return slots + slot * slot_bytes; }
  __device__ __forceinline__ uint32_t full(int slot) const { return barriers + 8 * slot; }
  __device__ __forceinline__ uint32_t empty(int slot) const { return full(num_slots + slot); }
  // By one thread for each slot.
  __device__ __forceinline__ void init(int slot, int num_consumers) const {
    ptx::init_barrier(full(slot), 1);
    ptx::init_barrier(empty(slot), num_consumers);
  }
  // By one lane of every consumer.
  __device__ __forceinline__ void release(int slot) const { ptx::arrive(empty(slot)); }
};

// Two rings, since weights come from far and x from L2: a slot of the one holds a chunk of the tile's rows of
// weights, one of the other a chunk of x. Layout: x, weights, the norm's weights of this CTA's inputs,
// barriers. When a CTA's products have ended, the sums of the tile's parts take the place of the rings
// (TallSums).
template <int kConsumerWarps>
struct TallRings {
  static constexpr int kWarps = kConsumerWarps;

  const TallParams& params;
  const TallShare share;
  SlotRing tokens, weights;
  uint32_t norm;  // of the first chunk

  __device__ __forceinline__ TallRings(const TallParams& layer, const char* shared)
      : params(layer), share(layer) {
    const uint32_t begin = ptx::shared_address(shared);
    norm = begin + rings_bytes(layer);
    const uint32_t barriers = norm + norm_bytes(layer);
    tokens = {begin, barriers, layer.token_slots, token_slot_bytes(layer)};
    weights = {tokens.at(layer.token_slots), tokens.full(2 * layer.token_slots), layer.weight_slots,
               weight_slot_bytes(layer)};
  }

  // Where sums of parts come, and when all have.
  __device__ __forceinline__ uint32_t sums() const { return tokens.slots; }
  __device__ __forceinline__ uint32_t sums_full() const { return weights.full(2 * weights.num_slots); }
  __device__ __forceinline__ uint32_t norm_at(int chunk) const {
    return norm + (chunk - share.chunk_begin) * kRowBytes;
  }

  // By all threads.
  __device__ __forceinline__ void init() const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < weights.num_slots) weights.init(thread, kWarps);
    if (thread < tokens.num_slots) tokens.init(thread, kWarps);
    if (thread == 0) ptx::init_barrier(sums_full(), 1);
    ptx::publish_barriers();
  }

  // The following three by one thread of each of kCopyWarps warps, which are numbered from 0: a copy takes a
  // thread some 250 cycles, so weights and x have two warps each, which take chunks in turn.
  __device__ __forceinline__ void prefetch_map(int warp) const {
    ptx::prefetch_map(warp % 2 == 0 ? &params.weight : &params.x);
  }
  // Weights do not depend on the kernel before, so the first of them come while it ends.
  __device__ __forceinline__ void copy_early(int warp) const {
    if (warp % 2 == 0) copy_weights(warp / 2, 0, params.weight_slots);
  }
  __device__ __forceinline__ void copy_rest(int warp) const {
    if (warp % 2 == 0) return copy_weights(warp / 2, params.weight_slots, INT_MAX);
    ptx::wait_for_previous_kernel();
    copy_x(warp / 2);
  }

  // By all consumers, whom it joins: the norm's weights, behind which there are zeros.
  __device__ __forceinline__ void copy_norm() const {
    if (params.norm == nullptr) return;
    for (int input = share.chunk_begin * kChunkElements + 8 * static_cast<int>(threadIdx.x);
         input < share.chunk_end * kChunkElements; input += 8 * 32 * kWarps) {
      const bool valid = input < params.in_features;
      ptx::copy_async_16(norm + 2 * (input - share.chunk_begin * kChunkElements),
                         static_cast<const char*>(params.norm) + (valid ? 2 * int64_t{input} : 0), valid);
    }
    ptx::commit_copies();
    ptx::wait_copies<0>();
    ptx::wait_named(/*barrier=*/1, 32 * kWarps);
  }

 private:
  // Calls visit(place, tile, chunk) for every second of the chunks [begin, end) of this CTA's, from its
  // turn-th on.
  template <class Visit>
  __device__ __forceinline__ void for_each_chunk(int num_slots, int turn, int begin, int end,
                                                 const Visit& visit) const {
    RingPlace place;
    int i = 0;
    for (int tile = share.first_tile; tile < params.num_tiles; tile += share.num_clusters)
      for (int chunk = share.chunk_begin; chunk < share.chunk_end; ++chunk, ++i) {
        if (i >= end) return;
        if (i >= begin && i % 2 == turn) visit(place, tile, chunk);
        place.advance(num_slots);
      }
  }

  __device__ __forceinline__ void copy_weights(int turn, int begin, int end) const {
    const uint64_t policy = ptx::evict_first();
    for_each_chunk(weights.num_slots, turn, begin, end, [&](const RingPlace& place, int tile, int chunk) {
      ptx::wait_for_phase(weights.empty(place.slot), place.parity ^ 1);
      const uint32_t full = weights.full(place.slot);
      ptx::arrive_and_expect(full, weights.slot_bytes);
      ptx::copy_box(weights.at(place.slot), &params.weight, chunk * kChunkElements, 0, 0,
                    tile * params.tile_pairs, full, policy);
    });
  }

  __device__ __forceinline__ void copy_x(int turn) const {
    const uint64_t policy = ptx::evict_last();
    for_each_chunk(tokens.num_slots, turn, 0, INT_MAX, [&](const RingPlace& place, int, int chunk) {
      ptx::wait_for_phase(tokens.empty(place.slot), place.parity ^ 1);
      const uint32_t full = tokens.full(place.slot);
      ptx::arrive_and_expect(full, tokens.slot_bytes);
      ptx::copy_box(tokens.at(place.slot), &params.x, chunk * kChunkElements, 0, full, policy);
    });
  }
};

}  // namespace attend::kernels::cuda::sm90
