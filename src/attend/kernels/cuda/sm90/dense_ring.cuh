// Weights and rows of x on their way through shared memory.
#pragma once

#include <cstdint>

#include "attend/kernels/cuda/ptx/cluster.cuh"
#include "attend/kernels/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/cuda/ptx/copy.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/cuda/sm90/dense_kernel.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kSwizzleBytes = 1024;  // what slots are aligned to
inline constexpr int kBarrierBytes = 8 * (2 * kMaxSlots + 1);

// Bytes of a slot: x, then weights.
__host__ __device__ inline int x_bytes(const DenseParams& params) {
  return params.num_sharers * params.box_rows * kRowBytes;
}
__host__ __device__ inline int slot_bytes(const DenseParams& params) {
  return x_bytes(params) + params.tile_pairs * kPairBytes;
}

// Bytes of a square's sums: 16 rows of x by a pair of weights.
inline constexpr int kSquareBytes = 16 * kPairRows * static_cast<int>(sizeof(float));
// Of shared memory, that the sums and the rows' sums of squares of a tile's parts take.
__host__ __device__ inline int sums_bytes(const DenseParams& params) {
  const int num_squares = (params.num_rows + 15) / 16 * params.tile_pairs;
  return (num_squares + params.num_parts - 1) / params.num_parts * params.num_parts * kSquareBytes;
}
__host__ __device__ inline int squared_bytes(const DenseParams& params) {
  return params.num_parts * kMaxTokens * static_cast<int>(sizeof(float));
}
// Of the ring, whose place those take.
__host__ __device__ inline int ring_bytes(const DenseParams& params, int num_slots) {
  const int slots = num_slots * slot_bytes(params);
  const int sums = params.num_parts == 1 ? 0 : sums_bytes(params) + squared_bytes(params);
  return slots > sums ? slots : sums;
}

// A CTA's share of a layer: of the tile groups first_group, first_group + num_clusters, ... the tile of its
// place among the sharers, and of that the chunks [chunk_begin, chunk_end).
struct DenseShare {
  int part, sharer, first_group, num_clusters, chunk_begin, chunk_end;

  __device__ explicit DenseShare(const DenseParams& params) {
    const int cluster_size = params.num_parts * params.num_sharers, rank = ptx::cluster_rank();
    part = rank / params.num_sharers;
    sharer = rank - part * params.num_sharers;
    first_group = static_cast<int>(blockIdx.x) / cluster_size;
    num_clusters = static_cast<int>(gridDim.x) / cluster_size;
    chunk_begin = params.num_chunks * part / params.num_parts;
    chunk_end = params.num_chunks * (part + 1) / params.num_parts;
  }
};

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

// A slot holds a chunk of the rows of x, of the tile's rows of weights and of the norm's weights. Layout: slots
// of the first two, slots of the norm, barriers. When a CTA's products have ended, the sums of the cluster take
// the place of the slots (DenseSums).
template <int kConsumerWarps>
struct DenseRing {
  static constexpr int kWarps = kConsumerWarps;

  const DenseParams& params;
  const DenseShare share;
  uint32_t slots, norms, barriers;  // in the shared window

  __device__ __forceinline__ DenseRing(const DenseParams& dense, const char* shared)
      : params(dense),
        share(dense),
        slots(ptx::shared_address(shared)),
        norms(slots + ring_bytes(dense, dense.num_slots)),
        barriers(norms + dense.num_slots * kRowBytes) {}

  // When a slot's copies have come, and when all sharers have multiplied what they hold there.
  __device__ __forceinline__ uint32_t full(int slot) const { return barriers + 8 * slot; }
  __device__ __forceinline__ uint32_t empty(int slot) const { return full(params.num_slots + slot); }
  // When the sums of all parts have come.
  __device__ __forceinline__ uint32_t sums_full() const { return full(2 * params.num_slots); }
  __device__ __forceinline__ uint32_t x_at(int slot) const { return slots + slot * slot_bytes(params); }
  __device__ __forceinline__ uint32_t weights_at(int slot) const { return x_at(slot) + x_bytes(params); }
  __device__ __forceinline__ uint32_t norm_at(int slot) const { return norms + slot * kRowBytes; }
  // The cluster's CTA that has this part of the inputs, for that sharer's tile.
  __device__ __forceinline__ int rank_of(int part, int sharer) const {
    return part * params.num_sharers + sharer;
  }

  // By one thread.
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < params.num_slots; ++slot) {
      ptx::init_barrier(full(slot), 1);
      ptx::init_barrier(empty(slot), params.num_sharers * kWarps);
    }
    ptx::init_barrier(sums_full(), 1);
    ptx::publish_barriers();
  }

  // By one thread: everything that this CTA multiplies. Weights do not depend on the kernel before, so the
  // first of them come while it ends. What is asked for later comes later, so x does not go behind too many.
  __device__ __forceinline__ void copy() const {
    ptx::prefetch_map(&params.weight);
    ptx::prefetch_map(&params.x);
    Cursor weights(*this);
    for (int i = 0; i < params.num_early; ++i) {
      expect(weights);
      copy_weights(weights);
      weights.advance(*this);
    }
    ptx::wait_for_previous_kernel();
    Cursor x(*this);
    for (int i = 0; i < params.num_early; ++i) {
      copy_x(x);
      x.advance(*this);
    }
    for (; x.group < params.num_tile_groups; x.advance(*this)) {
      ptx::wait_for_phase(empty(x.place.slot), x.place.parity ^ 1);
      expect(x);
      copy_x(x);
      copy_weights(x);
    }
  }

  // By all lanes of a consumer.
  __device__ __forceinline__ void release(int slot, int lane) const {
    if (lane >= params.num_sharers) return;
    if (params.num_sharers == 1)
      ptx::arrive(empty(slot));
    else
      ptx::arrive_in_cluster(ptx::address_in_cta(empty(slot), rank_of(share.part, lane)));
  }

 private:
  struct Cursor {
    RingPlace place;
    int group, chunk;

    __device__ explicit Cursor(const DenseRing& ring)
        : group(ring.share.first_group), chunk(ring.share.chunk_begin) {}
    __device__ __forceinline__ void advance(const DenseRing& ring) {
      place.advance(ring.params.num_slots);
      if (++chunk < ring.share.chunk_end) return;
      chunk = ring.share.chunk_begin;
      group += ring.share.num_clusters;
    }
  };

  __device__ __forceinline__ void expect(const Cursor& at) const {
    ptx::arrive_and_expect(full(at.place.slot), slot_bytes(params) + (params.normed ? kRowBytes : 0));
  }
  __device__ __forceinline__ void copy_weights(const Cursor& at) const {
    const int slot = at.place.slot, tile = at.group * params.num_sharers + share.sharer;
    ptx::copy_box(weights_at(slot), &params.weight, at.chunk * kChunkElements, 0, 0, tile * params.tile_pairs,
                  full(slot), ptx::evict_first());
    if (params.normed) ptx::copy_box(norm_at(slot), &params.norm, at.chunk * kChunkElements, 0, full(slot), ptx::evict_last());
  }
  // This CTA's rows, to all sharers: each tells its own barrier.
  __device__ __forceinline__ void copy_x(const Cursor& at) const {
    const int slot = at.place.slot, first_row = share.sharer * params.box_rows;
    const uint32_t to = x_at(slot) + first_row * kRowBytes;
    if (params.num_sharers == 1) {
      ptx::copy_box(to, &params.x, at.chunk * kChunkElements, first_row, full(slot), ptx::evict_last());
      return;
    }
    const uint32_t sharers = ((1u << params.num_sharers) - 1) << rank_of(share.part, 0);
    ptx::copy_box_to_cluster(to, &params.x, at.chunk * kChunkElements, first_row, full(slot), sharers,
                             ptx::evict_last());
  }
};

}  // namespace attend::kernels::cuda::sm90
