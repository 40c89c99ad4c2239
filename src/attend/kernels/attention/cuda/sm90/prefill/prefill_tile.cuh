// Shape, warps, registers and shared memory of prefill on sm_90a (prefill.cuh).
#pragma once

#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kPanelColumns = kPanelRowBytes / 2;  // of elements of 16 bits

// What kind of plan a tile is for. kVerify: of few rows, whose keys two CTAs of each SM divide. kByRows: as
// kMany, where K and V come row by row.
enum class PrefillKind : uint8_t { kMany, kFixedSplits, kVerify, kByRows };

// The tile's shape, warps and registers. `kConverted`: K/V of fp8, which become f16. `kCaps`: scores may be
// capped. `kDescales`: there are descales of requests and heads, for which work tiles of few keys take some 4
// % longer.
template <int kQk, int kV, bool kConverted, PrefillKind kKind = PrefillKind::kMany, bool kCaps = true,
          bool kDescales = false>
struct PrefillTile {
  static constexpr bool kFixedSplits = kKind == PrefillKind::kFixedSplits,
                        kVerifies = kKind == PrefillKind::kVerify, kByRows = kKind == PrefillKind::kByRows,
                        kMayCap = kCaps;
  static constexpr bool kConverts = kConverted;
  static constexpr int kHeadDimQk = kQk, kHeadDimV = kV;
  static constexpr int kConsumers = kVerifies ? 1 : has_three_consumers(kHeadDimQk) && !kConverts ? 3 : 2;
  static constexpr int kElementBytes = 2, kRows = 64 * kConsumers;
  static constexpr int kCtasOfSm = kVerifies ? kVerifyCtasOfSm : 1;
  static constexpr bool kMayPlanInline = kVerifies;
  static constexpr int kKeys = kConverts      ? 128
                               : kFixedSplits ? kKeyTile
                               : kVerifies    ? kVerifyKeys
                                              : prefill_keys(kHeadDimQk);
  static constexpr int kMaxBoxRows = kConverts ? kMaxBoxRowsOfFp8 : max_box_rows(kHeadDimQk, kVerifies);
  // Of values, and of keys. A stage becomes empty soon before the next but one tile is wanted, which is late
  // for rows that come one by one: they have a third stage where there is room beside the queries.
  static constexpr int kStages = kFixedSplits || (kByRows && kHeadDimQk == 64) ? 3 : 2;
  static constexpr int kKeyStages = kByRows && kHeadDimQk != 192 ? 3 : kStages;
  static constexpr int kPartsOfTile = 1;               // that producers load one after another
  static constexpr bool kProducerZeroesValues = true;  // of rows that are not the request's
  // One work tile is computed, K and queries of the next are loaded. Taking more of them ahead would
  // unbalance the CTAs at the end.
  static constexpr int kWorkTileStages = 2;
  // Queries are read until the last QK^T. Where two do not fit, those of the next work tile are loaded during
  // the epilogue of the present one.
  static constexpr int kQueryStages = kHeadDimQk > 128 || kVerifies ? 1 : 2;
  // The exponentials of a KV tile while the PV of the one before is under way, or behind it; and whether the
  // consumers take turns at the tensor cores: as measured. Of three, the others' products hide a softmax
  // anyway.
  static constexpr bool kExponentiatesBesidePv = kConsumers == 3 || (kHeadDimV > 64 && kHeadDimV <= 128),
                        kTakesTurns = kConsumers == 2 && kHeadDimV > 64;
  // Whether exponentials wait for no row max. Three consumers of head dim 96 have no registers for that
  // beside a logit cap.
  static constexpr bool kOneStepSoftmax = !kFixedSplits && !(kHeadDimV == 96 && kMayCap && !kVerifies);
  // Whether results of a work tile are written beside the first QK^T of the next, whose queries have a place
  // of their own.
  static constexpr bool kBeginsEarly = kQueryStages == 2 && kOneStepSoftmax;
  // Where two work tiles' queries fit, results take the place of the queries, from where TMA stores them.
  static constexpr bool kStagesResults = kQueryStages == 2;
  // Whether consumers find descales of a work tile beside it.
  static constexpr bool kStagesDescales = kDescales;
  static_assert(!kStagesDescales || (kConverts && kQueryStages == kWorkTileStages));
  static constexpr int kQkPanels = (kHeadDimQk + kPanelColumns - 1) / kPanelColumns;
  static constexpr int kVPanels = (kHeadDimV + kPanelColumns - 1) / kPanelColumns;

  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kVPanels * kKeyPanelBytes;
  // K and V of fp8 as they come: one part of a tile is converted, the next is loaded. At head dim 128 two
  // halves are all that fits beside two work tiles' queries.
  static constexpr int kFp8Stages = kConverts ? 2 : 0;
  static constexpr int kFp8Keys = kHeadDimQk > 64 ? kMaxBoxRowsOfFp8 : kKeys;
  static constexpr int kFp8Bytes = kFp8Keys * kPanelRowBytes;
  static_assert(!kConverts || kHeadDimQk <= kPanelRowBytes);

  // Fixed splits: the output accumulators of the splits that have ended.
  static constexpr int kSplitBytes = kFixedSplits ? kRows * kHeadDimV * static_cast<int>(sizeof(float)) : 0;

  // Warps by role.
  static constexpr int kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  static constexpr int kWarpsOfOperand = kConverts ? 2 : 1;  // who write keys, and values
  static constexpr int kConvertWarps = kConverts ? 2 * kWarpsOfOperand : 0;
  static constexpr int kLoadWarps = 2, kQueryWarps = 2;
  // Those that load where K and V come row by row. Beside two consumers they are a warpgroup of their own, if
  // registers suffice; else one warp alone has queries. kMany without a logit cap leaves rows to kByRows.
  static constexpr bool kMayLoadRows = !kConverts && (kMayCap || kKind != PrefillKind::kMany),
                        kHasRowWarpgroup = kByRows && kConsumers == 2 && kHeadDimV <= 128,
                        kMayQueryAlone = kMayLoadRows && !kHasRowWarpgroup;
  static constexpr int kRowWarps = !kMayLoadRows ? 0 : kHasRowWarpgroup ? 4 : 3;
  // Of boxes or rows, and of queries: whole warpgroups.
  static constexpr int kCopyWarps = ((kHasRowWarpgroup ? kRowWarps : kLoadWarps) + kQueryWarps + 3) / 4 * 4;
  static constexpr int kProducerWarps = kConvertWarps + kCopyWarps;
  static constexpr int kThreads = 32 * (kProducerWarps + kConsumerWarps);

  // setmaxnreg redistributes what the CTA was launched with, a multiple of 8 a thread: of 64 K some may stay
  // unused, and a warpgroup that asked for them would wait for ever.
  static constexpr int kProducerRegisters = kVerifies ? 72 : 56, kConvertRegisters = 40;
  static constexpr int kConsumerRegisters = kConverts          ? 208
                                            : kHasRowWarpgroup ? 256 - kProducerRegisters
                                            : kConsumers == 3  ? 152
                                            : kVerifies        ? 184
                                                               : 224;
  static_assert(32 * (kConvertWarps * kConvertRegisters + kCopyWarps * kProducerRegisters +
                      kConsumerWarps * kConsumerRegisters) <=
                65536 / kCtasOfSm / kThreads / 8 * 8 * kThreads);
  static_assert(kConvertWarps % 4 == 0);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMaxBoxRows == 0);
  static_assert(!kFixedSplits || (kConsumers == 2 && kKeys == kKeyTile && kMaxBoxRows == kKeyTile));
  // Of a panel that is not full, wgmma takes the columns there are: steps of 16, and 32 of the result.
  static_assert(kHeadDimQk % 16 == 0 && kHeadDimV % 32 == 0);
};

template <class Tile>
struct PrefillShared {
  static constexpr int kQueriesAt = 0;
  static constexpr int kKeysAt = kQueriesAt + Tile::kQueryStages * Tile::kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + Tile::kKeyStages * Tile::kKeyBytes;
  static constexpr int kFp8KeysAt = kValuesAt + Tile::kStages * Tile::kValueBytes;
  static constexpr int kFp8ValuesAt = kFp8KeysAt + Tile::kFp8Stages * Tile::kFp8Bytes;
  static constexpr int kSplitsAt = kFp8ValuesAt + Tile::kFp8Stages * Tile::kFp8Bytes;
  static constexpr int kWorkTilesAt = kSplitsAt + Tile::kSplitBytes;
  static constexpr int kStagedAt =
      kWorkTilesAt + Tile::kWorkTileStages * static_cast<int>(sizeof(PrefillWorkTile));
  static constexpr int kStagedBytes =
      Tile::kStagesResults ? Tile::kQueryWarps * Tile::kQueryStages * static_cast<int>(sizeof(StagedResults))
                           : 0;
  static constexpr int kDescalesAt = kStagedAt + kStagedBytes;
  static constexpr int kDescalesBytes =
      Tile::kStagesDescales ? Tile::kWorkTileStages * static_cast<int>(sizeof(HeadDescales)) : 0;
  static constexpr int kBarriersAt = kDescalesAt + kDescalesBytes;
  static constexpr int kNumQueryBarriers = Tile::kQueryStages * Tile::kConsumers;
  static constexpr int kFp8Barrier =
      2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers + 2 * Tile::kKeyStages + 2 * Tile::kStages + 1;
  static constexpr int kNumBarriers = kFp8Barrier + 4 * Tile::kFp8Stages;
  static constexpr int kBytes = kBarriersAt + 8 * kNumBarriers;
  static_assert(kBytes <= 227 * 1024);

  char* base;
  uint32_t shared;  // its address in the shared window

  __device__ explicit PrefillShared(char* memory) : base(memory), shared(ptx::shared_address(memory)) {}

  __device__ uint32_t queries(int stage) const { return shared + kQueriesAt + stage * Tile::kQueryBytes; }
  __device__ uint32_t keys(int stage) const { return shared + kKeysAt + stage * Tile::kKeyBytes; }
  __device__ uint32_t values(int stage) const { return shared + kValuesAt + stage * Tile::kValueBytes; }
  __device__ uint32_t fp8_keys(int stage) const { return shared + kFp8KeysAt + stage * Tile::kFp8Bytes; }
  __device__ uint32_t fp8_values(int stage) const { return shared + kFp8ValuesAt + stage * Tile::kFp8Bytes; }
  // Of the present thread of a consumer: [four columns, thread] of float4.
  __device__ float4* splits(int consumer) const {
    return reinterpret_cast<float4*>(base + kSplitsAt) + consumer * (Tile::kHeadDimV / 8 * 128) +
           ptx::tid_x() % 128;
  }
  __device__ PrefillWorkTile& work_tile(int stage) const {
    return reinterpret_cast<PrefillWorkTile*>(base + kWorkTilesAt)[stage];
  }
  // What lies in a stage of queries, for one of the warps that load them.
  __device__ StagedResults& staged(int warp, int stage) const {
    return reinterpret_cast<StagedResults*>(base + kStagedAt)[warp * Tile::kQueryStages + stage];
  }
  // Of the work tile, and of the queries, of a stage.
  __device__ HeadDescales& descales(int stage) const {
    return reinterpret_cast<HeadDescales*>(base + kDescalesAt)[stage];
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
  __device__ uint32_t keys_full(int stage) const {
    return barrier(2 * Tile::kWorkTileStages + 2 * kNumQueryBarriers + stage);
  }
  __device__ uint32_t keys_empty(int stage) const { return keys_full(Tile::kKeyStages + stage); }
  __device__ uint32_t values_full(int stage) const { return keys_full(2 * Tile::kKeyStages + stage); }
  __device__ uint32_t values_empty(int stage) const { return values_full(Tile::kStages + stage); }
  // For the producer of values alone.
  __device__ uint32_t values_landed() const { return values_full(2 * Tile::kStages); }
  __device__ uint32_t fp8_keys_full(int stage) const { return barrier(kFp8Barrier + stage); }
  __device__ uint32_t fp8_keys_empty(int stage) const { return fp8_keys_full(Tile::kFp8Stages + stage); }
  __device__ uint32_t fp8_values_full(int stage) const { return fp8_keys_full(2 * Tile::kFp8Stages + stage); }
  __device__ uint32_t fp8_values_empty(int stage) const {
    return fp8_keys_full(3 * Tile::kFp8Stages + stage);
  }

  // By one thread. `by_rows`: so K and V come.
  __device__ void init_barriers(bool by_rows) const {
    const int load_warps = by_rows ? Tile::kRowWarps : Tile::kLoadWarps;
    const int arrivals = by_rows ? 32 * Tile::kRowWarps : Tile::kWarpsOfOperand;  // of keys, and of values
    for (int stage = 0; stage < Tile::kWorkTileStages; ++stage) {
      ptx::mbarrier_init(work_tile_full(stage), 1);
      ptx::mbarrier_init(work_tile_empty(stage), Tile::kConsumerWarps + Tile::kConvertWarps + load_warps);
    }
    for (int stage = 0; stage < Tile::kQueryStages; ++stage)
      for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
        ptx::mbarrier_init(queries_full(stage, consumer), 1);
        ptx::mbarrier_init(queries_empty(stage, consumer), Tile::kConsumerWarps / Tile::kConsumers);
      }
    for (int stage = 0; stage < Tile::kKeyStages; ++stage) {
      ptx::mbarrier_init(keys_full(stage), arrivals);
      ptx::mbarrier_init(keys_empty(stage), Tile::kConsumerWarps);
    }
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::mbarrier_init(values_full(stage), arrivals);
      ptx::mbarrier_init(values_empty(stage), Tile::kConsumerWarps);
    }
    ptx::mbarrier_init(values_landed(), 1);
    for (int stage = 0; stage < Tile::kFp8Stages; ++stage) {
      ptx::mbarrier_init(fp8_keys_full(stage), 1);
      ptx::mbarrier_init(fp8_values_full(stage), 1);
      ptx::mbarrier_init(fp8_keys_empty(stage), Tile::kWarpsOfOperand);
      ptx::mbarrier_init(fp8_values_empty(stage), Tile::kWarpsOfOperand);
    }
    ptx::fence_mbarrier_init();
  }
};

}  // namespace attend::kernels::cuda::sm90
