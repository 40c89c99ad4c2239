// The tile of prefill in e4m3: shape, warps, registers, and where its shared memory has what.
#pragma once

#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"

namespace attend::kernels::cuda::sm90 {

// The tile's shape, warps and registers.
template <int kQk, int kV>
struct PrefillE4m3Tile {
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV;
  static constexpr int kElementBytes = 1, kRows = kPrefillRows;
  static constexpr bool kMayPlanInline = false, kVerifies = false;
  static constexpr int kKeys = kPanelRowBytes;  // as many as a row of V^T has bytes
  static constexpr int kPartsOfTile = 1;
  static constexpr int kMaxBoxRows = kMaxBoxRowsOfFp8;
  static constexpr int kStages = 3, kKeyStages = kStages;  // of values as they come, and of keys
  static constexpr int kTransposedStages = 2;              // of values transposed
  static constexpr bool kStagesResults = false, kStagesDescales = false, kMayQueryAlone = false;
  static constexpr bool kProducerZeroesValues = false;  // who transposes them does
  static constexpr int kWorkTileStages = 2, kQueryStages = kHeadDimQk > 128 ? 1 : 2;
  static constexpr int kQkPanels = (kHeadDimQk + kPanelRowBytes - 1) / kPanelRowBytes;
  static constexpr int kVPanels = (kHeadDimV + kPanelRowBytes - 1) / kPanelRowBytes;

  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kVPanels * kKeyPanelBytes;
  static constexpr int kTransposedBytes = kHeadDimV * kPanelRowBytes;

  // Warps by role; each consumer warpgroup has a warp that loads its queries.
  static constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  // The turn passes within the exponentials, when so many registers of P, of kKeys / 8, are packed: they take
  // as long as products, so that it is they of both consumers that should not meet. In work tiles of few KV
  // tiles the other would come to its first product too late: as soon as products are issued there.
  static constexpr int kPackedBeforeTurn = 4, kMaxTilesOfEarlyTurns = 4;
  static constexpr int kLoadWarps = 2;      // of keys, and of values
  static constexpr int kProducerWarps = 4;  // those and two of queries
  static constexpr int kTransposeWarps = 4;
  static constexpr int kFirstConsumerWarp = kProducerWarps + kTransposeWarps;
  static constexpr int kThreads = 32 * (kFirstConsumerWarp + kConsumerWarps);

  // As of PrefillTile.
  static constexpr int kProducerRegisters = 64, kTransposeRegisters = 48, kConsumerRegisters = 200;
  static_assert(32 * (kProducerWarps * kProducerRegisters + kTransposeWarps * kTransposeRegisters +
                      kConsumerWarps * kConsumerRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMaxBoxRows == 0 && kHeadDimV % 64 == 0 &&
                kHeadDimQk % 32 == 0);
};

template <class Tile>
struct PrefillE4m3Shared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueriesAt + Tile::kQueryStages * Tile::kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + Tile::kStages * Tile::kKeyBytes;
  static constexpr int kTransposedAt = kValuesAt + Tile::kStages * Tile::kValueBytes;
  static constexpr int kWorkTilesAt = kTransposedAt + Tile::kTransposedStages * Tile::kTransposedBytes;
  static constexpr int kBarriersAt =
      kWorkTilesAt + Tile::kWorkTileStages * static_cast<int>(sizeof(PrefillWorkTile));
  static constexpr int kNumQueryBarriers = Tile::kQueryStages * Tile::kConsumers;
  static constexpr int kKeysBarrier = 2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers;
  static constexpr int kTransposedBarrier = kKeysBarrier + 4 * Tile::kStages;
  static constexpr int kNumBarriers = kTransposedBarrier + 2 * Tile::kTransposedStages;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;
  static_assert(kBytes <= 227 * 1024 && kBarriersAt % 8 == 0);

  char* base;
  uint32_t shared;  // its address in the shared window

  __device__ explicit PrefillE4m3Shared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries(int stage) const { return shared + kQueriesAt + stage * Tile::kQueryBytes; }
  __device__ uint32_t keys(int stage) const { return shared + kKeysAt + stage * Tile::kKeyBytes; }
  // Values as they come.
  __device__ uint32_t values(int stage) const { return shared + kValuesAt + stage * Tile::kValueBytes; }
  __device__ uint32_t transposed(int stage) const {
    return shared + kTransposedAt + stage * Tile::kTransposedBytes;
  }
  __device__ PrefillWorkTile& work_tile(int stage) const {
    return reinterpret_cast<PrefillWorkTile*>(base + kWorkTilesAt)[stage];
  }

  __device__ uint32_t barrier(int i) const { return shared + kBarriersAt + 8 * i; }
  // The work tile is written; all warps are done with it.
  __device__ uint32_t work_tile_full(int stage) const { return barrier(stage); }
  __device__ uint32_t work_tile_empty(int stage) const { return barrier(Tile::kWorkTileStages + stage); }
  // Of a consumer's queries.
  __device__ uint32_t queries_full(int stage, int consumer) const {
    return barrier(2 * Tile::kWorkTileStages + stage * Tile::kConsumers + consumer);
  }
  __device__ uint32_t queries_empty(int stage, int consumer) const {
    return queries_full(stage, consumer) + 8 * kNumQueryBarriers;
  }
  __device__ uint32_t keys_full(int stage) const { return barrier(kKeysBarrier + stage); }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(Tile::kStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * Tile::kStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return keys_full(3 * Tile::kStages + stage); }
  __device__ uint32_t transposed_full(int stage) const { return barrier(kTransposedBarrier + stage); }
  __device__ uint32_t transposed_empty(int stage) const {
    return transposed_full(Tile::kTransposedStages + stage);
  }

  // By one thread.
  __device__ void init_barriers() const {
    for (int stage = 0; stage < Tile::kWorkTileStages; ++stage) {
      ptx::mbarrier_init(work_tile_full(stage), 1);
      ptx::mbarrier_init(work_tile_empty(stage),
                         Tile::kConsumerWarps + Tile::kLoadWarps + Tile::kTransposeWarps);
    }
    for (int stage = 0; stage < Tile::kQueryStages; ++stage)
      for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
        ptx::mbarrier_init(queries_full(stage, consumer), 1);
        ptx::mbarrier_init(queries_empty(stage, consumer), Tile::kConsumerWarps / Tile::kConsumers);
      }
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::mbarrier_init(keys_full(stage), 1);
      ptx::mbarrier_init(values_full(stage), 1);
      ptx::mbarrier_init(keys_empty(stage), Tile::kConsumerWarps);
      ptx::mbarrier_init(values_empty(stage), Tile::kTransposeWarps);
    }
    for (int stage = 0; stage < Tile::kTransposedStages; ++stage) {
      ptx::mbarrier_init(transposed_full(stage), Tile::kTransposeWarps);
      ptx::mbarrier_init(transposed_empty(stage), Tile::kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }
};

}  // namespace attend::kernels::cuda::sm90
