// Shape, warps, registers and shared memory of prefill on sm_90a (prefill.cuh).
#pragma once

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/page_lookup.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_stages.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/sm90/packed_pipeline_state.h"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kPanelColumns = kPanelRowBytes / 2;  // 16-bit elements

// Kind of plan that a tile supports. kVerify: few rows; two CTAs of each SM divide the keys. kByRows: as
// kMany, but K and V are copied row by row.
enum class PrefillKind : uint8_t { kMany, kFixedSplits, kVerify, kByRows };

// Tile shape, warps and registers. `kConverted`: fp8 K/V are converted to f16. `kCaps`: scores may have a
// logit cap. `kDescales`: descales per request and head, with which work tiles of few keys take about 4 %
// longer.
template <int kQk, int kV, bool kConverted, PrefillKind kKind = PrefillKind::kMany, bool kCaps = true,
          bool kDescales = false>
struct PrefillTile {
  static constexpr bool kFixedSplits = kKind == PrefillKind::kFixedSplits,
                        kVerifies = kKind == PrefillKind::kVerify, kByRows = kKind == PrefillKind::kByRows,
                        kHasLogitCap = kCaps;
  static constexpr bool kConvertsKv = kConverted;
  // Above head dim 256, the two CTAs of a cluster have half of the columns each: kHeadDimQk of q and K,
  // kHeadDimV of V. They exchange their parts of the scores.
  static constexpr int kCtasPerWorkTile = ctas_per_work_tile({kQk, kV});
  static constexpr bool kInPairs = kCtasPerWorkTile == 2;
  static constexpr int kHeadDimQk = kQk / kCtasPerWorkTile, kHeadDimV = kV / kCtasPerWorkTile;
  static constexpr int kConsumers = kVerifies ? 1 : has_three_consumers(kHeadDimQk) && !kConvertsKv ? 3 : 2;
  static constexpr int kElementBytes = 2, kRows = 64 * kConsumers;
  static constexpr int kCtasPerSm = kVerifies ? kVerifyCtasPerSm : 1;
  static constexpr bool kSupportsInlinePlan = kVerifies;
  static constexpr int kKeys = kConvertsKv    ? 128
                               : kFixedSplits ? kKeyTile
                               : kVerifies    ? kVerifyKeys
                                              : prefill_keys(kHeadDimQk);
  static constexpr int kMaxBoxRows = kConvertsKv ? kMaxFp8BoxRows : max_box_rows(kHeadDimQk, kVerifies);
  // Stages of V, and of K. A stage becomes empty shortly before the tile after the next is needed. This is
  // late for rows that are copied one by one, so they have a third stage if it fits next to the queries.
  static constexpr int kStages = kFixedSplits || (kByRows && kHeadDimQk == 64) ? 3 : 2;
  static constexpr int kKeyStages = kByRows && kHeadDimQk != 192 && !kInPairs ? 3 : kStages;
  static constexpr int kPartsPerTile = 1;              // loaded one after another
  static constexpr bool kProducerZeroesValues = true;  // of rows outside of the request's keys
  // One work tile is computed while K and queries of the next are loaded. More prefetched work tiles would
  // unbalance the CTAs at the end.
  static constexpr int kWorkTileStages = 2;
  // Queries are read until the last QK^T. If two stages do not fit, those of the next work tile are loaded
  // during the epilogue of the current one.
  static constexpr int kQueryStages = kHeadDimQk > 128 || kVerifies ? 1 : 2;
  // Exponentials of a KV tile run during PV of the previous one, or after it; consumers alternate on the
  // tensor cores (ping-pong) or not. Both are chosen by measurement. With three consumers, the products of
  // the others hide a softmax without ping-pong.
  static constexpr bool kOverlapsSoftmaxWithPv = kConsumers == 3 || (kHeadDimV > 64 && kHeadDimV <= 128),
                        kPingPong = kConsumers == 2 && kHeadDimV > 64;
  // Exponentials do not wait for the row max. With a logit cap, three consumers at head dim 96 have no
  // registers for that.
  static constexpr bool kLazyRescale = !kFixedSplits && !(kHeadDimV == 96 && kHasLogitCap && !kVerifies);
  // Results of a work tile are written during the first QK^T of the next, which needs a second stage of
  // queries.
  static constexpr bool kOverlapsEpilogue = kQueryStages == 2 && kLazyRescale;
  // If queries of two work tiles fit, results overwrite the queries and TMA stores them from there.
  static constexpr bool kStoresOutWithTma = kQueryStages == 2;
  // Descales are stored with each work tile.
  static constexpr bool kHasHeadDescales = kDescales;
  static_assert(!kHasHeadDescales || (kConvertsKv && kQueryStages == kWorkTileStages));
  static constexpr int kQkPanels = (kHeadDimQk + kPanelColumns - 1) / kPanelColumns;
  static constexpr int kVPanels = (kHeadDimV + kPanelColumns - 1) / kPanelColumns;

  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kVPanels * kKeyPanelBytes;
  // fp8 K and V before conversion: one part of a tile is converted while the next is loaded. At head dim 128
  // only two half tiles fit next to the queries of two work tiles.
  static constexpr int kFp8Stages = kConvertsKv ? 2 : 0;
  static constexpr int kFp8Keys = kHeadDimQk > 64 ? kMaxFp8BoxRows : kKeys;
  static constexpr int kFp8Bytes = kFp8Keys * kPanelRowBytes;
  static_assert(!kConvertsKv || kHeadDimQk <= kPanelRowBytes);

  // Fixed splits: output accumulators of the splits that have ended.
  static constexpr int kSplitBytes = kFixedSplits ? kRows * kHeadDimV * static_cast<int>(sizeof(float)) : 0;

  // Scores of the cluster's other CTA, of one KV tile.
  static constexpr int kPeerScoreBytes = kInPairs ? kRows * kKeys * static_cast<int>(sizeof(float)) : 0;

  // Warps by role.
  static constexpr int kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  static constexpr int kWarpsPerOperand = kConvertsKv ? 2 : 1;  // for keys, and for values
  static constexpr int kConvertWarps = kConvertsKv ? 2 * kWarpsPerOperand : 0;
  static constexpr int kLoadWarps = 2, kQueryWarps = 2;
  // Warps that copy K and V row by row. With two consumers they are a separate warpgroup if registers
  // suffice; else one warp is left for queries. Without a logit cap, kMany does not load rows: kByRows does.
  static constexpr bool kMayLoadRows = !kConvertsKv && (kHasLogitCap || kKind != PrefillKind::kMany),
                        kHasRowWarpgroup = kByRows && kConsumers == 2 && kHeadDimV <= 128,
                        kSeparateQueryWarp = kMayLoadRows && !kHasRowWarpgroup;
  static constexpr int kRowWarps = !kMayLoadRows ? 0 : kHasRowWarpgroup ? 4 : 3;
  // Warps that copy boxes or rows, and queries: whole warpgroups.
  static constexpr int kCopyWarps = ((kHasRowWarpgroup ? kRowWarps : kLoadWarps) + kQueryWarps + 3) / 4 * 4;
  static constexpr int kProducerWarps = kConvertWarps + kCopyWarps;
  static constexpr int kThreads = 32 * (kProducerWarps + kConsumerWarps);

  // Contents of PrefillShared in addition to PrefillStages: fp8 K and V, the splits that have ended, and
  // scores of the other CTA; staged results and descales; values_copied(), the barriers of fp8 and those of
  // scores.
  static constexpr int kAddedBytes = 2 * kFp8Stages * kFp8Bytes + kSplitBytes + kPeerScoreBytes;
  static constexpr int kStagedBytes =
      kStoresOutWithTma ? kQueryWarps * kQueryStages * static_cast<int>(sizeof(StagedResults)) : 0;
  static constexpr int kAddedWorkTileBytes =
      kStagedBytes + (kHasHeadDescales ? kWorkTileStages * static_cast<int>(sizeof(HeadDescales)) : 0);
  static constexpr int kAddedBarriers = 1 + 4 * kFp8Stages + (kInPairs ? 2 * kConsumers : 0);

  // setmaxnreg redistributes the registers that the CTA was launched with, a multiple of 8 per thread. Some
  // of the 64 K may not be allocated, and a warpgroup that requests those waits forever.
  static constexpr int kProducerRegisters = kVerifies ? 72 : 56, kConvertRegisters = 40;
  static constexpr int kConsumerRegisters = kConvertsKv        ? 208
                                            : kHasRowWarpgroup ? 256 - kProducerRegisters
                                            : kConsumers == 3  ? 152
                                            : kVerifies        ? 184
                                                               : 224;
  static_assert(32 * (kConvertWarps * kConvertRegisters + kCopyWarps * kProducerRegisters +
                      kConsumerWarps * kConsumerRegisters) <=
                65536 / kCtasPerSm / kThreads / 8 * 8 * kThreads);
  static_assert(kConvertWarps % 4 == 0);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMaxBoxRows == 0);
  static_assert(!kFixedSplits || (kConsumers == 2 && kKeys == kKeyTile && kMaxBoxRows == kKeyTile));
  // In a partial panel, wgmma reads only the existing columns: K in steps of 16, N in steps of 32.
  static_assert(kHeadDimQk % 16 == 0 && kHeadDimV % 32 == 0);
};

template <class Tile>
struct PrefillShared : PrefillStages<Tile> {
  using Stages = PrefillStages<Tile>;
  using Stages::base, Stages::shared, Stages::added_barrier;
  static constexpr int kFp8KeysAt = Stages::kAddedAt;
  static constexpr int kFp8ValuesAt = kFp8KeysAt + Tile::kFp8Stages * Tile::kFp8Bytes;
  static constexpr int kSplitsAt = kFp8ValuesAt + Tile::kFp8Stages * Tile::kFp8Bytes;
  static constexpr int kPeerScoresAt = kSplitsAt + Tile::kSplitBytes;
  static constexpr int kStagedAt = Stages::kAddedWorkTilesAt;
  static constexpr int kDescalesAt = kStagedAt + Tile::kStagedBytes;

  __device__ explicit PrefillShared(char* memory) : Stages(memory) {}

  __device__ uint32_t fp8_keys(int stage) const { return shared + kFp8KeysAt + stage * Tile::kFp8Bytes; }
  __device__ uint32_t fp8_values(int stage) const { return shared + kFp8ValuesAt + stage * Tile::kFp8Bytes; }
  // Returns the accumulators of the calling consumer thread: [four columns, thread] of float4.
  __device__ float4* splits(int consumer) const {
    return reinterpret_cast<float4*>(base + kSplitsAt) + consumer * (Tile::kHeadDimV / 8 * 128) +
           ptx::tid_x() % 128;
  }
  // Returns the scores that the other CTA of the cluster has sent to a consumer warp: [four scores, lane] of
  // float4.
  __device__ uint32_t peer_scores(int warp) const {
    return shared + kPeerScoresAt + warp * (Tile::kPeerScoreBytes / Tile::kConsumerWarps);
  }
  // Returns the results in a stage of queries, for one of the warps that load queries.
  __device__ StagedResults& staged(int warp, int stage) const {
    return reinterpret_cast<StagedResults*>(base + kStagedAt)[warp * Tile::kQueryStages + stage];
  }
  // Returns the descales of a stage of work tiles, which is also the stage of queries.
  __device__ HeadDescales& descales(int stage) const {
    return reinterpret_cast<HeadDescales*>(base + kDescalesAt)[stage];
  }

  // Barrier used by the producer of V only.
  __device__ uint32_t values_copied() const { return added_barrier(0); }
  __device__ uint32_t fp8_keys_full(int stage) const { return added_barrier(1 + stage); }
  __device__ uint32_t fp8_keys_empty(int stage) const { return fp8_keys_full(Tile::kFp8Stages + stage); }
  __device__ uint32_t fp8_values_full(int stage) const { return fp8_keys_full(2 * Tile::kFp8Stages + stage); }
  __device__ uint32_t fp8_values_empty(int stage) const {
    return fp8_keys_full(3 * Tile::kFp8Stages + stage);
  }

  // The scores for a consumer have arrived; the other CTA has read those that this consumer sent. A barrier
  // for each warp would let the compiler assume that warps diverge.
  __device__ uint32_t peer_scores_full(int consumer) const { return added_barrier(1 + consumer); }
  __device__ uint32_t peer_scores_empty(int consumer) const {
    return peer_scores_full(Tile::kConsumers + consumer);
  }

  // Called by one thread. `by_rows`: K and V are copied row by row.
  __device__ void init_barriers(bool by_rows) const {
    const int load_warps = by_rows ? Tile::kRowWarps : Tile::kLoadWarps;
    const int arrivals = by_rows ? 32 * Tile::kRowWarps : Tile::kWarpsPerOperand;  // for keys, and for values
    this->init_work_tile_barriers(Tile::kConsumerWarps + Tile::kConvertWarps + load_warps);
    for (int stage = 0; stage < Tile::kKeyStages; ++stage) {
      ptx::mbarrier_init(this->keys_full(stage), arrivals);
      ptx::mbarrier_init(this->keys_empty(stage), Tile::kConsumerWarps);
    }
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      ptx::mbarrier_init(this->values_full(stage), arrivals);
      ptx::mbarrier_init(this->values_empty(stage), Tile::kConsumerWarps);
    }
    ptx::mbarrier_init(values_copied(), 1);
    if constexpr (Tile::kInPairs) {
      for (int consumer = 0; consumer < Tile::kConsumers; ++consumer) {
        ptx::mbarrier_init(peer_scores_full(consumer), Tile::kConsumerWarps / Tile::kConsumers);
        ptx::mbarrier_init(peer_scores_empty(consumer), Tile::kConsumerWarps / Tile::kConsumers);
      }
    }
    for (int stage = 0; stage < Tile::kFp8Stages; ++stage) {
      ptx::mbarrier_init(fp8_keys_full(stage), 1);
      ptx::mbarrier_init(fp8_values_full(stage), 1);
      ptx::mbarrier_init(fp8_keys_empty(stage), Tile::kWarpsPerOperand);
      ptx::mbarrier_init(fp8_values_empty(stage), Tile::kWarpsPerOperand);
    }
    ptx::fence_mbarrier_init();
  }
};

// Producer warps of prefill on sm_90a that copy 16-bit keys and values row by row with cp.async, if pages
// have too few rows for TMA boxes.

// Producer of a part of the rows of K and of V. Every loading warp has such a part. The part must take few
// instructions: next to the consumers one takes ten cycles or more, and the products of a tile take about
// 2,000. Lanes look up pages one tile ahead, and exchange row offsets of 32 bits.
//
// K is loaded one tile ahead of V. A stage of V becomes empty when its products end, which is when K of the
// tile after the next is needed: keys loaded after V would be late.
template <class Tile, class Shared>
class PrefillRowProducer {
  static constexpr int kElementBytes = Tile::kElementBytes;
  static constexpr int kPieceColumns = 16 / kElementBytes, kPanelColumns = kPanelRowBytes / kElementBytes;
  static constexpr int kKeys = Tile::kKeys;
  // A warp copies four rows at once, 128 bytes of each by eight lanes. It has `kRowGroupsPerWarp` groups of
  // four rows of a tile; the last warp may have fewer.
  static constexpr int kRowsAtOnce = 4, kNumRowGroups = kKeys / kRowsAtOnce;
  static constexpr int kRowGroupsPerWarp = (kNumRowGroups + Tile::kRowWarps - 1) / Tile::kRowWarps;
  static constexpr int kLastWarpRowGroups = kNumRowGroups - (Tile::kRowWarps - 1) * kRowGroupsPerWarp;
  // Lane 8 g + j holds the offset of row g of the warp's row groups j, j + 8, ...
  static constexpr int kRowsPerLane = (kRowGroupsPerWarp + 7) / 8;
  static constexpr int kRowGroupsInFlight = 4;  // offsets that are exchanged before the first copy
  static_assert(kNumRowGroups % 2 == 0 && kLastWarpRowGroups > 0);

 public:
  // `warp`: index below Tile::kRowWarps.
  __device__ PrefillRowProducer(const PrefillParams& params, const Shared& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) {
      const int row_group = r * 8 + lane_ % 8,
                row = (warp * kRowGroupsPerWarp + row_group) * kRowsAtOnce + lane_ / 8;
      row_[r] = row_group < kRowGroupsPerWarp && row < kKeys ? row : kPastAllKeys;
    }
  }

  // Loads K and V of all work tiles.
  __device__ void run() {
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      load(work_tile);
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  static constexpr int kNoPage = -1;
  static constexpr int kPastAllKeys = 1 << 30;  // a row past all keys

  __device__ void load(const PrefillWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles, begin = work_tile.tile.kv_begin, end = work_tile.tile.kv_end;
    const AttentionParams& params = params_.attention;
    const PageLookup lookup(params.index, work_tile.tile.request);
    const int first_column = first_column_of_cta<Tile>();
    const char* const keys = piece_address(params.k, work_tile.head, first_column);
    const char* const values = piece_address(params.v, work_tile.head, first_column);
    int next_entries[kRowsPerLane], pages[kRowsPerLane];
    const auto look_up = [&](int first_key) {
      int positions[kRowsPerLane];
      bool needed[kRowsPerLane];
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) {
        positions[r] = first_key + row_[r];
        needed[r] = static_cast<uint32_t>(positions[r] - begin) < static_cast<uint32_t>(end - begin);
      }
      lookup.look_up(positions, needed, next_entries);
    };
    const auto is_whole = [&](int first_key) { return first_key >= begin && first_key + kKeys <= end; };
    int first_key = work_tile.first_key;
    look_up(first_key);
    for (int i = 0; i <= num_tiles; ++i, first_key += kKeys) {
      int key_pages[kRowsPerLane];
      if (i < num_tiles) {
#pragma unroll
        for (int r = 0; r < kRowsPerLane; ++r) key_pages[r] = lookup.find_page(next_entries[r]);
        if (i + 1 < num_tiles) look_up(first_key + kKeys);
        copy<Tile::kQkPanels>(key_pages, params_.key_rows, keys, shared_.keys_empty(keys_.stage),
                              keys_.parity, shared_.keys(keys_.stage), params.head_dim_qk - first_column,
                              first_key, is_whole(first_key));
        ptx::cp_async_mbarrier_arrive_noinc(shared_.keys_full(keys_.stage));
        keys_.advance(Tile::kKeyStages);
      }
      if (i > 0) {
        copy<Tile::kVPanels>(pages, params_.value_rows, values, shared_.values_empty(values_.stage),
                             values_.parity, shared_.values(values_.stage), params.head_dim_v - first_column,
                             first_key - kKeys, is_whole(first_key - kKeys));
        ptx::cp_async_mbarrier_arrive_noinc(shared_.values_full(values_.stage));
        values_.advance(Tile::kStages);
      }
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) pages[r] = key_pages[r];
    }
  }

  // Returns the address of this lane's 16 bytes of a head's row at offset 0, from `first_column`.
  __device__ const char* piece_address(const PagedRows& rows, int head, int first_column) const {
    const char* const row =
        static_cast<const char*>(rows.data) + kElementBytes * (rows.head_stride * head + first_column);
    // The compiler would repeat a plain addition for each row.
    return reinterpret_cast<const char*>(ptx::mad_wide(lane_ % 8, 16, reinterpret_cast<int64_t>(row)));
  }

  // Copies the warp's rows of a tile with `pages`, once its stage is empty. `whole`: all rows are keys of the
  // work tile; otherwise rows without a page become zero.
  template <int kPanels>
  __device__ __forceinline__ void copy(const int (&pages)[kRowsPerLane], const PagedRowStrides& rows,
                                       const char* from, uint32_t empty, uint32_t parity, uint32_t tile,
                                       int head_dim, int first_key, bool whole) const {
    int row_offsets[kRowsPerLane];
#pragma unroll
    for (int r = 0; r < kRowsPerLane; ++r) {
      const int in_page = (first_key + row_[r]) & (params_.attention.index.page_size - 1);
      row_offsets[r] = pages[r] * rows.page_units + in_page * rows.slot_units;
    }
    ptx::mbarrier_wait(empty, parity ^ 1);
    if (whole) {
      copy<kPanels, true>(row_offsets, from, rows.unit_bytes, tile, head_dim);
    } else {
#pragma unroll
      for (int r = 0; r < kRowsPerLane; ++r) row_offsets[r] = pages[r] == kNoPage ? kNoSlot : row_offsets[r];
      copy<kPanels, false>(row_offsets, from, rows.unit_bytes, tile, head_dim);
    }
  }
  static constexpr int kNoSlot = INT32_MIN;

  // The swizzle repeats every eight rows; every second group of four rows has the halves of a panel's row
  // exchanged.
  template <int kPanels, bool kWhole>
  __device__ __forceinline__ void copy(const int (&row_offsets)[kRowsPerLane], const char* from,
                                       int unit_bytes, uint32_t tile, int head_dim) const {
    const int first_row = warp_ * kRowGroupsPerWarp * kRowsAtOnce;
    const uint32_t even = tile + swizzled(first_row + lane_ / 8, lane_ % 8), odd = even ^ (kRowsAtOnce << 4);
#pragma unroll
    for (int first = 0; first < kRowGroupsPerWarp; first += kRowGroupsInFlight) {
      int offsets[kRowGroupsInFlight];
      const char* rows[kRowGroupsInFlight];
#pragma unroll
      for (int j = first; j < min(first + kRowGroupsInFlight, kRowGroupsPerWarp); ++j) {
        offsets[j - first] = __shfl_sync(0xffffffffu, row_offsets[j / 8], j % 8, 8);
        rows[j - first] = from + static_cast<int64_t>(offsets[j - first]) * unit_bytes;
      }
#pragma unroll
      for (int j = first; j < min(first + kRowGroupsInFlight, kRowGroupsPerWarp); ++j) {
        if (j >= kLastWarpRowGroups && warp_ == Tile::kRowWarps - 1) return;
        const uint32_t to = (j % 2 == 0 ? even : odd) + j * kRowsAtOnce * kPanelRowBytes;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          const bool valid = (kWhole || offsets[j - first] != kNoSlot) &&
                             panel * kPanelColumns + lane_ % 8 * kPieceColumns < head_dim;
          ptx::cp_async_16(to + panel * Tile::kKeyPanelBytes, rows[j - first] + panel * kPanelRowBytes,
                           valid);
        }
      }
    }
  }

  const PrefillParams& params_;
  const Shared& shared_;
  const int warp_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  int row_[kRowsPerLane];  // rows of a tile that this lane looks up
  PipelineState keys_, values_;
};

// fp8 K and V of prefill on sm_90a (prefill.cuh): loaded to shared memory as fp8 and converted to f16 there.

// Layout of fp8 K and V for PrefillProducer: rows are 128 bytes apart, also at head dim 64.
template <class Tile>
struct PrefillFp8Tile : Tile {
  static constexpr int kElementBytes = 1, kQkPanels = 1, kVPanels = 1;
  static constexpr int kStages = Tile::kFp8Stages, kKeyStages = kStages;
  static constexpr int kKeys = Tile::kFp8Keys, kPartsPerTile = Tile::kKeys / kKeys;
};
template <class Tile>
struct PrefillFp8Shared : PrefillShared<Tile> {
  using Shared = PrefillShared<Tile>;
  __device__ PrefillFp8Shared(const Shared& shared) : Shared(shared) {}
  __device__ uint32_t keys(int stage) const { return Shared::fp8_keys(stage); }
  __device__ uint32_t values(int stage) const { return Shared::fp8_values(stage); }
  __device__ uint32_t keys_full(int stage) const { return Shared::fp8_keys_full(stage); }
  __device__ uint32_t keys_empty(int stage) const { return Shared::fp8_keys_empty(stage); }
  __device__ uint32_t values_full(int stage) const { return Shared::fp8_values_full(stage); }
  __device__ uint32_t values_empty(int stage) const { return Shared::fp8_values_empty(stage); }
};

// Converts K, or V. f16 represents every fp8 value exactly.
template <Element kKv, class Tile, bool kValues>
class PrefillConverter {
  using Shared = PrefillShared<Tile>;
  static constexpr int kPieceBytes = 16, kPiecesPerPanel = kPanelColumns / kPieceBytes;
  static constexpr int kPanels = kValues ? Tile::kVPanels : Tile::kQkPanels;
  // Rows that a warp, and all warps of the operand, read at once with 16 bytes per lane. All rows of a lane
  // have the same swizzle.
  static constexpr int kRowsPerWarp = 32 / (kPanels * kPiecesPerPanel);
  static constexpr int kRowsAtOnce = Tile::kWarpsPerOperand * kRowsPerWarp;
  static constexpr int kRounds = Tile::kFp8Keys / kRowsAtOnce;
  static constexpr int kAhead = 2;
  static_assert(kPanels <= 2 && kRowsAtOnce % 8 == 0 && kAhead <= kRounds);
  static constexpr int kParts = Tile::kKeys / Tile::kFp8Keys;

 public:
  // `warp`: index among the operand's warps.
  __device__ PrefillConverter(const Shared& shared, int warp) : shared_(shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32, eighth = lane / 8, second = lane / 4 % 2;
    // Eight lanes read and write 128 bytes at once, which must cover all banks. Four lanes have half a row of
    // fp8 (in one panel: a row of head dim 64). The swizzle moves those of the `second` four to the other
    // half of 128 bytes, and their row is odd if that of the first four is even: f16 of one row are written
    // to even pieces of 16 bytes, those of the other to odd ones.
    int row, panel;
    if constexpr (kPanels == 2) {
      row = eighth / 2 * 2 + second;
      panel = eighth % 2 ^ second;
    } else {
      row = second != 0 ? eighth ^ 5 : eighth;
      panel = 0;
    }
    row += warp * kRowsPerWarp;
    const int piece = lane % kPiecesPerPanel;
    from_ = (kValues ? shared.fp8_values(0) : shared.fp8_keys(0)) +
            swizzled(row, panel * kPiecesPerPanel + piece);
    to_ = (kValues ? shared.values(0) : shared.keys(0)) +
          static_cast<uint32_t>(panel * Tile::kKeyPanelBytes) + swizzled(row, 2 * piece);
  }

  // Converts all work tiles.
  __device__ void run() {
    for (WorkTiles state;; state.advance()) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage()), state.parity());
      const int num_tiles = shared_.work_tile(state.stage()).num_tiles;
      if (num_tiles < 0) return;
      arrive(shared_.work_tile_empty(state.stage()));
#pragma unroll 1
      for (int i = 0; i < num_tiles; ++i, tiles_.advance()) {
#pragma unroll
        for (int part = 0; part < kParts; ++part, parts_.advance()) convert(part);
        ptx::fence_proxy_async();
        arrive(kValues ? shared_.values_full(tiles_.stage()) : shared_.keys_full(tiles_.stage()));
      }
    }
  }

 private:
  using WorkTiles = PackedPipelineState<Tile::kWorkTileStages>;

  // Converts a part of the tile. kAhead pieces are read before the first is converted.
  __device__ __forceinline__ void convert(int part) const {
    ptx::mbarrier_wait(
        kValues ? shared_.fp8_values_full(parts_.stage()) : shared_.fp8_keys_full(parts_.stage()),
        parts_.parity());
    const uint32_t from = from_ + static_cast<uint32_t>(parts_.stage() * Tile::kFp8Bytes);
    const auto read = [&](int i) { return ptx::ld_shared_16(from + i * kRowsAtOnce * kPanelRowBytes); };
    uint4 pieces[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) pieces[i] = read(i);
    if (part == 0)
      ptx::mbarrier_wait(kValues ? shared_.values_empty(tiles_.stage()) : shared_.keys_empty(tiles_.stage()),
                         tiles_.parity() ^ 1);
    const uint32_t to =
        to_ + static_cast<uint32_t>(tiles_.stage() * (kValues ? Tile::kValueBytes : Tile::kKeyBytes));
    const uint32_t to_second = to ^ 16;  // the neighboring piece
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const uint4 piece = pieces[i % kAhead];
      if (i + kAhead < kRounds) pieces[i % kAhead] = read(i + kAhead);
      const int at = (part * kRounds + i) * kRowsAtOnce * kPanelRowBytes;
      ptx::st_shared_16(to + at, convert_pairs(piece.x, piece.y));
      ptx::st_shared_16(to_second + at, convert_pairs(piece.z, piece.w));
    }
    // Arrives after the last piece is in registers: TMA would overwrite a piece that is still being read.
    arrive(kValues ? shared_.fp8_values_empty(parts_.stage()) : shared_.fp8_keys_empty(parts_.stage()));
  }
  // Called by all lanes of a warp.
  __device__ __forceinline__ static void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }
  __device__ __forceinline__ static uint4 convert_pairs(uint32_t low, uint32_t high) {
    return make_uint4(low_pair<kKv>(low), high_pair<kKv>(low), low_pair<kKv>(high), high_pair<kKv>(high));
  }

  const Shared& shared_;
  uint32_t from_, to_;  // shared addresses of the lane's first 16 bytes of a tile, and of their result
  PackedPipelineState<Tile::kStages> tiles_;
  PackedPipelineState<Tile::kFp8Stages> parts_;
};

}  // namespace attend::kernels::cuda::sm90
