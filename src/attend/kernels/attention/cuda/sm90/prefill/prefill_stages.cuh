// Common parts of the 16-bit (prefill.cuh) and the e4m3 kernel (prefill_e4m3.cuh) of prefill on sm_90a:
// stages of queries, K and V in shared memory with their barriers, the begin of warps, and the part of a
// consumer other than products.
#pragma once

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"

namespace attend::kernels::cuda::sm90 {

// Shared memory: stages of queries, keys and values; Tile::kAddedBytes defined by the kernel; work tiles;
// Tile::kAddedWorkTileBytes defined by the kernel; barriers, including Tile::kAddedBarriers defined by the
// kernel.
template <class Tile>
struct PrefillStages {
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueriesAt + Tile::kQueryStages * Tile::kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + Tile::kKeyStages * Tile::kKeyBytes;
  static constexpr int kAddedAt = kValuesAt + Tile::kStages * Tile::kValueBytes;
  static constexpr int kWorkTilesAt = kAddedAt + Tile::kAddedBytes;
  static constexpr int kAddedWorkTilesAt =
      kWorkTilesAt + Tile::kWorkTileStages * static_cast<int>(sizeof(PrefillWorkTile));
  static constexpr int kBarriersAt = kAddedWorkTilesAt + Tile::kAddedWorkTileBytes;
  static constexpr int kNumQueryBarriers = Tile::kQueryStages * Tile::kConsumers;
  static constexpr int kKeysBarrier = 2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers;
  static constexpr int kAddedBarrier = kKeysBarrier + 2 * Tile::kKeyStages + 2 * Tile::kStages;
  static constexpr int kNumBarriers = kAddedBarrier + Tile::kAddedBarriers;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;
  static_assert(kBytes <= 227 * 1024 && kBarriersAt % 8 == 0);

  char* base;
  uint32_t shared;  // address of `base` in the shared window

  __device__ explicit PrefillStages(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries(int stage) const { return shared + kQueriesAt + stage * Tile::kQueryBytes; }
  __device__ uint32_t keys(int stage) const { return shared + kKeysAt + stage * Tile::kKeyBytes; }
  __device__ uint32_t values(int stage) const { return shared + kValuesAt + stage * Tile::kValueBytes; }
  __device__ PrefillWorkTile& work_tile(int stage) const {
    return reinterpret_cast<PrefillWorkTile*>(base + kWorkTilesAt)[stage];
  }

  __device__ uint32_t barrier(int i) const { return shared + kBarriersAt + 8 * i; }
  __device__ uint32_t added_barrier(int i) const { return barrier(kAddedBarrier + i); }
  // The work tile is written; all warps have released it.
  __device__ uint32_t work_tile_full(int stage) const { return barrier(stage); }
  __device__ uint32_t work_tile_empty(int stage) const { return barrier(Tile::kWorkTileStages + stage); }
  // Barriers of one consumer's queries.
  __device__ uint32_t queries_full(int stage, int consumer) const {
    return barrier(2 * Tile::kWorkTileStages + stage * Tile::kConsumers + consumer);
  }
  __device__ uint32_t queries_empty(int stage, int consumer) const {
    return queries_full(stage, consumer) + 8 * kNumQueryBarriers;
  }
  __device__ uint32_t keys_full(int stage) const { return barrier(kKeysBarrier + stage); }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(Tile::kKeyStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * Tile::kKeyStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return values_full(Tile::kStages + stage); }

 protected:
  // Initializes barriers of work tiles, which `num_warps` warps read, and of queries. Called by one thread.
  __device__ void init_work_tile_barriers(int num_warps) const {
    for (int stage = 0; stage < Tile::kWorkTileStages; ++stage) {
      ptx::mbarrier_init(work_tile_full(stage), 1);
      ptx::mbarrier_init(work_tile_empty(stage), num_warps);
    }
    for (int stage = 0; stage < Tile::kQueryStages; ++stage)
      for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
        ptx::mbarrier_init(queries_full(stage, consumer), 1);
        ptx::mbarrier_init(queries_empty(stage, consumer), Tile::kConsumerWarps / Tile::kConsumers);
      }
  }
};

// Executed by all threads after barriers are initialized, before warps branch to their roles. Returns the
// thread's warp.
template <class Tile>
__device__ __forceinline__ int begin_roles(const AttentionParams& params) {
  ptx::griddepcontrol_wait();
  write_padding(params, num_planned_tokens<Tile>(params));
  __syncthreads();
  return ptx::warp_uniform(static_cast<int>(threadIdx.x) / 32);
}

// Part of a consumer warpgroup that is the same in both kernels.
template <class Tile, class Shared>
class PrefillConsumerBase {
 protected:
  // Named barriers: two that order the warpgroups' wgmma (ping-pong), then one for each warpgroup.
  static constexpr int kSchedulerBarrier = 1, kWarpgroupBarrier = kSchedulerBarrier + Tile::kConsumers;

  // `warpgroup`: index among the consumers.
  __device__ PrefillConsumerBase(const PrefillParams& params, const Shared& shared, int warpgroup)
      : params_(params.attention), shared_(shared), warpgroup_(warpgroup) {}

  // Computed again at each use, since there are few registers.
  __device__ __forceinline__ WorkTileRows work_tile_rows(const PrefillWorkTile& work_tile) const {
    return {params_, work_tile.tile, work_tile.head, max_work_tile_rows<Tile>(params_)};
  }
  // Returns the address of the consumer's queries in a stage.
  __device__ __forceinline__ uint32_t queries_at(int stage) const {
    return shared_.queries(stage) + warpgroup_ * Tile::kConsumerRows * kPanelRowBytes;
  }
  // One arrival per warp.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  // Without ping-pong the barrier is that of the warpgroup: some barrier is needed to keep the compiler from
  // assuming that its warps diverge.
  __device__ __forceinline__ void scheduler_barrier_sync() const {
    if constexpr (!Tile::kPingPong) return ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    ptx::barrier_sync(kSchedulerBarrier + warpgroup_, 128 * Tile::kConsumers);
  }
  __device__ __forceinline__ void scheduler_barrier_arrive() const {
    if constexpr (!Tile::kPingPong) return;
    ptx::barrier_arrive(kSchedulerBarrier + (warpgroup_ ^ 1), 128 * Tile::kConsumers);
  }

  const AttentionParams& params_;
  const Shared& shared_;
  const int warpgroup_;
};

template <auto kKernel, class Tile, class Shared>
void launch_prefill_kernel(const PrefillParams& params, int num_ctas, void* stream) {
  allow_shared_memory<kKernel>(Shared::kBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas * Tile::kCtasPerWorkTile)),
                                  Tile::kThreads, Shared::kBytes, stream, params, "attention",
                                  Tile::kCtasPerWorkTile);
}

}  // namespace attend::kernels::cuda::sm90
