// Shared memory of prefill on sm_90a: the jobs in hand with their queries, and rings of keys and values.
#pragma once

#include "attend/kernels/attention/cuda/common/job_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_tile.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/sm90/ring_place.cuh"

namespace attend::kernels::cuda::sm90 {

// Where 16 bytes of a row of a chunk lie, from the chunk's begin.
__device__ inline uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kChunkRowBytes + ((piece ^ (row & 7)) << 4));
}

// A row tile and a KV head, with all keys that they see.
struct alignas(16) PrefillJob {
  RowTile tile;  // whose keys are narrowed to those of this layer
  int32_t head;
  int32_t first_key;  // of the first key tile
  int32_t num_tiles;  // -1: there are no more jobs
  KeyRange full;      // keys that every row sees
};

template <class Tile>
struct PrefillShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueriesAt + Tile::kQuerySlots * Tile::kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + Tile::kStages * Tile::kKeyBytes;
  static constexpr int kCopiedKeysAt = kValuesAt + Tile::kStages * Tile::kValueBytes;
  static constexpr int kCopiedValuesAt = kCopiedKeysAt + Tile::kCopiedStages * Tile::kCopiedKeyBytes;
  static constexpr int kJobsAt = kCopiedValuesAt + Tile::kCopiedStages * Tile::kCopiedValueBytes;
  static constexpr int kBarriersAt = kJobsAt + Tile::kJobSlots * static_cast<int>(sizeof(PrefillJob));
  static constexpr int kNumQueryBarriers = Tile::kQuerySlots * Tile::kConsumers;
  static constexpr int kNumBarriers = 2 * Tile::kJobSlots + 2 * kNumQueryBarriers + 4 * Tile::kStages;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;

  char* base;
  uint32_t shared;  // its address in the shared window

  __device__ explicit PrefillShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries(int slot) const { return shared + kQueriesAt + slot * Tile::kQueryBytes; }
  __device__ uint32_t keys(int slot) const { return shared + kKeysAt + slot * Tile::kKeyBytes; }
  __device__ uint32_t values(int slot) const { return shared + kValuesAt + slot * Tile::kValueBytes; }
  __device__ uint32_t copied_keys(int stage) const {
    return shared + kCopiedKeysAt + stage * Tile::kCopiedKeyBytes;
  }
  __device__ uint32_t copied_values(int stage) const {
    return shared + kCopiedValuesAt + stage * Tile::kCopiedValueBytes;
  }
  __device__ PrefillJob& job(int slot) const { return reinterpret_cast<PrefillJob*>(base + kJobsAt)[slot]; }

  __device__ uint32_t barrier(int i) const { return shared + kBarriersAt + 8 * i; }
  // The job is written; nobody needs it any more.
  __device__ uint32_t job_told(int slot) const { return barrier(slot); }
  __device__ uint32_t job_done(int slot) const { return barrier(Tile::kJobSlots + slot); }
  // The queries of a consumer.
  __device__ uint32_t queries_full(int slot, int consumer) const {
    return barrier(2 * Tile::kJobSlots + slot * Tile::kConsumers + consumer);
  }
  __device__ uint32_t queries_empty(int slot, int consumer) const {
    return queries_full(slot, consumer) + 8 * kNumQueryBarriers;
  }
  __device__ uint32_t keys_full(int slot) const {
    return barrier(2 * Tile::kJobSlots + 2 * kNumQueryBarriers + slot);
  }
  __device__ uint32_t keys_empty(int slot) const { return keys_full(Tile::kStages + slot); }
  __device__ uint32_t values_full(int slot) const { return keys_full(2 * Tile::kStages + slot); }
  __device__ uint32_t values_empty(int slot) const { return keys_full(3 * Tile::kStages + slot); }

  // By one thread.
  __device__ void init_barriers() const {
    for (int slot = 0; slot < Tile::kJobSlots; ++slot) {
      ptx::mbarrier_init(job_told(slot), 1);
      ptx::mbarrier_init(job_done(slot), Tile::kConsumerWarps + Tile::kCopyWarps);
    }
    for (int slot = 0; slot < Tile::kQuerySlots; ++slot)
      for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
        ptx::mbarrier_init(queries_full(slot, consumer), 1);
        ptx::mbarrier_init(queries_empty(slot, consumer), Tile::kConsumerWarps / Tile::kConsumers);
      }
    for (int slot = 0; slot < Tile::kStages; ++slot) {
      ptx::mbarrier_init(keys_full(slot), Tile::kRingWarps);
      ptx::mbarrier_init(values_full(slot), Tile::kRingWarps);
      ptx::mbarrier_init(keys_empty(slot), Tile::kConsumerWarps);
      ptx::mbarrier_init(values_empty(slot), Tile::kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }
};

// By all lanes of a warp: one arrival, once the copies that they have asked for by "cp.async" are done.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  ptx::cp_async_mbarrier_arrive(barrier);
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

}  // namespace attend::kernels::cuda::sm90
