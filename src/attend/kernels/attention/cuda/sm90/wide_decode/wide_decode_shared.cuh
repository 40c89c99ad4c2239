// Tile and shared memory of decode at head dims up to 512 on sm_90a (wide_decode.cuh).
#pragma once

#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/attention/cuda/sm90/wide_decode/wide_decode_kernel.h"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"

namespace attend::kernels::cuda::sm90 {

// A KV tile is loaded in four units: the left and the right half of K, then those of V. A unit consists of
// panels of 64 columns, each with rows of 128 bytes in TMA's 128-byte swizzle.
template <int kTileRows>
struct WideDecodeTile {
  static constexpr int kRows = kTileRows;
  static constexpr int kPanelRowBytes = 128, kPanelColumns = 64;
  static constexpr int kPanels = kWideHeadDim / kPanelColumns, kUnitPanels = kPanels / 2;
  static constexpr int kPanelBytes = kWideKeys * kPanelRowBytes, kUnitBytes = kUnitPanels * kPanelBytes;
  static constexpr int kUnitsPerTile = 4;
  static constexpr int kStages = kRows == 16 ? 6 : 4;  // of units
  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes, kQueryBytes = kPanels * kQueryPanelBytes;
  static constexpr int kPBytes = kRows * kPanelRowBytes;  // of one warpgroup: rows of 64 keys
  static constexpr int kScheduleStages = 2;

  static constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers;
  // Two warps load rows of K and V, of which one loads boxes; one loads queries and schedules.
  static constexpr int kRowWarps = 2, kQueryWarp = 3, kProducerWarps = 4;
  static constexpr int kThreads = 32 * (kProducerWarps + kConsumerWarps);
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kConsumerWarps * kConsumerRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
};

template <class Tile>
struct WideDecodeShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kStagesAt = kQueriesAt + Tile::kQueryBytes;
  static constexpr int kPAt = kStagesAt + Tile::kStages * Tile::kUnitBytes;
  // Row maxima, and row sums, of the warps of each warpgroup.
  static constexpr int kRowStatesAt = kPAt + Tile::kConsumers * Tile::kPBytes;
  static constexpr int kRowStateBytes = Tile::kRows * static_cast<int>(sizeof(float));
  static constexpr int kScheduleAt = kRowStatesAt + Tile::kConsumerWarps * kRowStateBytes;
  static constexpr int kWalkAt = kScheduleAt + Tile::kScheduleStages * static_cast<int>(sizeof(MlaWorkTile));
  static constexpr int kBarriersAt = kWalkAt + static_cast<int>(sizeof(PlanStart));
  static constexpr int kNumBarriers = 2 * Tile::kScheduleStages + 2 + 2 * Tile::kStages;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;
  static_assert(kBytes <= 227 * 1024 && kBarriersAt % 8 == 0);

  char* base;
  uint32_t shared;

  __device__ explicit WideDecodeShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries() const { return shared + kQueriesAt; }
  __device__ uint32_t stage(int stage) const {
    return shared + static_cast<uint32_t>(kStagesAt + stage * Tile::kUnitBytes);
  }
  __device__ uint32_t p(int warpgroup) const {
    return shared + static_cast<uint32_t>(kPAt + warpgroup * Tile::kPBytes);
  }
  // `warp`: index among the consumer warps.
  __device__ float* row_states(int warp) const {
    return reinterpret_cast<float*>(base + kRowStatesAt + warp * kRowStateBytes);
  }
  __device__ MlaWorkTile& work_tile(int stage) const {
    return reinterpret_cast<MlaWorkTile*>(base + kScheduleAt)[stage];
  }
  __device__ PlanStart& walk() const { return *reinterpret_cast<PlanStart*>(base + kWalkAt); }

  __device__ uint32_t barrier(int i) const { return shared + static_cast<uint32_t>(kBarriersAt + 8 * i); }
  __device__ uint32_t schedule_full(int stage) const { return barrier(stage); }
  __device__ uint32_t schedule_empty(int stage) const { return barrier(Tile::kScheduleStages + stage); }
  __device__ uint32_t queries_full() const { return barrier(2 * Tile::kScheduleStages); }
  __device__ uint32_t queries_empty() const { return barrier(2 * Tile::kScheduleStages + 1); }
  __device__ uint32_t full(int stage) const { return barrier(2 * Tile::kScheduleStages + 2 + stage); }
  __device__ uint32_t empty(int stage) const { return full(Tile::kStages + stage); }

  // Called by one thread. `by_rows`: K and V are copied row by row.
  __device__ void init_barriers(bool by_rows) const {
    const int load_warps = by_rows ? Tile::kRowWarps : 1;
    for (int stage = 0; stage < Tile::kScheduleStages; ++stage) {
      ptx::mbarrier_init(schedule_full(stage), 1);
      ptx::mbarrier_init(schedule_empty(stage), Tile::kConsumerWarps + load_warps + 1);
    }
    ptx::mbarrier_init(queries_full(), 1);
    ptx::mbarrier_init(queries_empty(), Tile::kConsumerWarps);
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::mbarrier_init(full(stage), by_rows ? 32 * Tile::kRowWarps : 1);
      ptx::mbarrier_init(empty(stage), Tile::kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }
};

}  // namespace attend::kernels::cuda::sm90
