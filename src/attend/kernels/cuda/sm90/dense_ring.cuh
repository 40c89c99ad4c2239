// Weights and rows of x on their way through shared memory.
#pragma once

#include <cstdint>

#include "attend/kernels/cuda/ptx/cluster.cuh"
#include "attend/kernels/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/cuda/ptx/copy.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/cuda/ptx/named_barrier.cuh"
#include "attend/kernels/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/cuda/sm90/dense_kernel.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kSwizzleBytes = 1024;  // what slots are aligned to
inline constexpr int kCopyWarps = 4;
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
// Of a CTA's part of the norm's weights.
__host__ __device__ inline int norm_bytes(const DenseParams& params) {
  return params.norm == nullptr ? 0
                                : (params.num_chunks + params.num_parts - 1) / params.num_parts * kRowBytes;
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

// A slot holds a chunk of the rows of x and of the tile's rows of weights. Layout: slots, the norm's weights
// of this CTA's inputs, barriers. When a CTA's products have ended, the sums of the cluster take the place of
// the slots (DenseSums).
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
        barriers(norms + norm_bytes(dense)) {}

  // When a slot's copies have come, and when all sharers have multiplied what they hold there.
  __device__ __forceinline__ uint32_t full(int slot) const { return barriers + 8 * slot; }
  __device__ __forceinline__ uint32_t empty(int slot) const { return full(params.num_slots + slot); }
  // When the sums of all parts have come.
  __device__ __forceinline__ uint32_t sums_full() const { return full(2 * params.num_slots); }
  __device__ __forceinline__ uint32_t x_at(int slot) const { return slots + slot * slot_bytes(params); }
  __device__ __forceinline__ uint32_t weights_at(int slot) const { return x_at(slot) + x_bytes(params); }
  __device__ __forceinline__ uint32_t norm_at(int chunk) const {
    return norms + (chunk - share.chunk_begin) * kRowBytes;
  }
  // The cluster's CTA that has this part of the inputs, for that sharer's tile.
  __device__ __forceinline__ int rank_of(int part, int sharer) const {
    return part * params.num_sharers + sharer;
  }

  // By one thread.
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < params.num_slots; ++slot) {
      ptx::init_barrier(full(slot), 2);  // weights and x
      ptx::init_barrier(empty(slot), params.num_sharers * kWarps);
    }
    ptx::init_barrier(sums_full(), 1);
    ptx::publish_barriers();
  }

  // By one thread of each of kCopyWarps warps: everything that this CTA multiplies. A copy takes a thread
  // some 250 cycles, so weights and x have two warps each, which take chunks in turn.
  __device__ __forceinline__ void copy(int warp) const {
    const int turn = warp / 2;
    if (warp % 2 == 0)
      copy_weights(turn);
    else
      copy_x(turn);
  }

  // By all consumers, whom it joins: the norm's weights, behind which there are zeros.
  __device__ __forceinline__ void copy_norm() const {
    if (params.norm == nullptr) return;
    for (int input = share.chunk_begin * kChunkElements + 8 * static_cast<int>(threadIdx.x);
         input < share.chunk_end * kChunkElements; input += 8 * 32 * kWarps) {
      const bool valid = input < params.in_features;
      ptx::copy_async_16(norm_at(share.chunk_begin) + 2 * (input - share.chunk_begin * kChunkElements),
                         static_cast<const char*>(params.norm) + (valid ? 2 * int64_t{input} : 0), valid);
    }
    ptx::commit_copies();
    ptx::wait_copies<0>();
    ptx::join_threads<32 * kWarps>(1);
  }

  // By all lanes of a consumer.
  __device__ __forceinline__ void release(int slot, int lane) const {
    if (lane >= params.num_sharers) return;
    if (params.num_sharers == 1)
      ptx::arrive(empty(slot));
    else
      ptx::arrive_in_cluster_relaxed(ptx::address_in_cta(empty(slot), rank_of(share.part, lane)));
  }

 private:
  // Calls visit(i, place, group, chunk) for every second chunk that is copied, the i-th.
  template <class Visit>
  __device__ __forceinline__ void for_each_chunk(int turn, const Visit& visit) const {
    RingPlace place;
    int i = 0;
    for (int group = share.first_group; group < params.num_tile_groups; group += share.num_clusters)
      for (int chunk = share.chunk_begin; chunk < share.chunk_end; ++chunk, ++i) {
        if (i % 2 == turn) visit(i, place, group, chunk);
        place.advance(params.num_slots);
      }
  }

  // Weights do not depend on the kernel before, so the first of them come while it ends. What is asked for
  // later comes later, so x does not go behind too many.
  __device__ __forceinline__ void copy_weights(int turn) const {
    const int bytes = params.tile_pairs * kPairBytes;
    const uint64_t policy = ptx::evict_first();
    bool waited = false;
    for_each_chunk(turn, [&](int i, const RingPlace& place, int group, int chunk) {
      if (i >= params.num_early && !waited) {
        ptx::wait_for_previous_kernel();
        waited = true;
      }
      ptx::wait_for_phase(empty(place.slot), place.parity ^ 1);
      ptx::arrive_and_expect(full(place.slot), bytes);
      ptx::copy_box(weights_at(place.slot), &params.weight, chunk * kChunkElements, 0, 0,
                    (group * params.num_sharers + share.sharer) * params.tile_pairs, full(place.slot),
                    policy);
    });
  }

  // This CTA's rows, to all sharers: each copy tells the barriers of all.
  __device__ __forceinline__ void copy_x(int turn) const {
    const int bytes = x_bytes(params), first_row = share.sharer * params.box_rows;
    const uint32_t sharers = ((1u << params.num_sharers) - 1) << rank_of(share.part, 0);
    const uint64_t policy = ptx::evict_last();
    ptx::prefetch_map(&params.x);
    ptx::wait_for_previous_kernel();
    for_each_chunk(turn, [&](int, const RingPlace& place, int, int chunk) {
      ptx::wait_for_phase(empty(place.slot), place.parity ^ 1);
      ptx::arrive_and_expect(full(place.slot), bytes);
      const uint32_t to = x_at(place.slot) + first_row * kRowBytes;
      if (params.num_sharers == 1)
        ptx::copy_box(to, &params.x, chunk * kChunkElements, 0, full(place.slot), policy);
      else
        ptx::copy_box_to_cluster(to, &params.x, chunk * kChunkElements, first_row, full(place.slot), sharers,
                                 policy);
    });
  }
};

}  // namespace attend::kernels::cuda::sm90
