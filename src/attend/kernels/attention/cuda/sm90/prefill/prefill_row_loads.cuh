// The warps of attention of many rows on sm_90a that bring keys and values of 16 bits row by row, by
// cp.async, where pages have too few rows for boxes of TMA.
#pragma once

#include "attend/kernels/attention/cuda/common/page_lookup.h"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"

namespace attend::kernels::cuda::sm90 {

// Producer of a part of the rows of K and of V. All warps that load have such a part, and few instructions
// for it: beside the consumers one takes ten cycles and more, of which a tile's products give some 2,000.
// Lanes know pages a tile ahead, and pass on where rows lie in 32 bits.
//
// K is a tile ahead of V. A stage of V becomes empty when its products have ended, which is when the next but
// one tile of K is wanted: keys that waited behind it would be late.
template <class Tile, class Shared>
class PrefillRowProducer {
  static constexpr int kElementBytes = Tile::kElementBytes;
  static constexpr int kPieceColumns = 16 / kElementBytes, kPanelColumns = kPanelRowBytes / kElementBytes;
  static constexpr int kKeys = Tile::kKeys;
  // Four rows at once, of which eight lanes each copy 128 bytes. A warp has `kFours` of those of a tile, the
  // last one perhaps fewer.
  static constexpr int kRowsAtOnce = 4, kAllFours = kKeys / kRowsAtOnce;
  static constexpr int kFours = (kAllFours + Tile::kRowWarps - 1) / Tile::kRowWarps;
  static constexpr int kFoursOfLast = kAllFours - (Tile::kRowWarps - 1) * kFours;
  // Lane 8 g + j knows where row g of four j of the warp lies, and of fours j + 8, ...
  static constexpr int kRowsOfLane = (kFours + 7) / 8;
  static constexpr int kUnderWay = 4;  // places that are passed on before the first is copied from
  static_assert(kAllFours % 2 == 0 && kFoursOfLast > 0);

 public:
  // `warp`: of Tile::kRowWarps.
  __device__ PrefillRowProducer(const PrefillParams& params, const Shared& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) {
      const int four = r * 8 + lane_ % 8, row = (warp * kFours + four) * kRowsAtOnce + lane_ / 8;
      row_[r] = four < kFours && row < kKeys ? row : kNever;
    }
  }

  // All work tiles.
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
  static constexpr int kNever = 1 << 30;  // a row behind all keys

  __device__ void load(const PrefillWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles, begin = work_tile.tile.kv_begin, end = work_tile.tile.kv_end;
    const AttentionParams& params = params_.attention;
    const PageLookup lookup(params.index, work_tile.tile.request);
    const char* const keys = piece_of(params.k, work_tile.head);
    const char* const values = piece_of(params.v, work_tile.head);
    int next_entries[kRowsOfLane], pages[kRowsOfLane];
    const auto look_up = [&](int first_key) {
      int positions[kRowsOfLane];
      bool wanted[kRowsOfLane];
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) {
        positions[r] = first_key + row_[r];
        wanted[r] = static_cast<uint32_t>(positions[r] - begin) < static_cast<uint32_t>(end - begin);
      }
      lookup.look_up(positions, wanted, next_entries);
    };
    const auto is_whole = [&](int first_key) { return first_key >= begin && first_key + kKeys <= end; };
    int first_key = work_tile.first_key;
    look_up(first_key);
    for (int i = 0; i <= num_tiles; ++i, first_key += kKeys) {
      int key_pages[kRowsOfLane];
      if (i < num_tiles) {
#pragma unroll
        for (int r = 0; r < kRowsOfLane; ++r) key_pages[r] = lookup.page_of(next_entries[r]);
        if (i + 1 < num_tiles) look_up(first_key + kKeys);
        copy<Tile::kQkPanels>(key_pages, params_.key_rows, keys, shared_.keys_empty(keys_.stage),
                              keys_.parity, shared_.keys(keys_.stage), params.head_dim_qk, first_key,
                              is_whole(first_key));
        ptx::cp_async_mbarrier_arrive_noinc(shared_.keys_full(keys_.stage));
        keys_.advance(Tile::kKeyStages);
      }
      if (i > 0) {
        copy<Tile::kVPanels>(pages, params_.value_rows, values, shared_.values_empty(values_.stage),
                             values_.parity, shared_.values(values_.stage), params.head_dim_v,
                             first_key - kKeys, is_whole(first_key - kKeys));
        ptx::cp_async_mbarrier_arrive_noinc(shared_.values_full(values_.stage));
        values_.advance(Tile::kStages);
      }
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) pages[r] = key_pages[r];
    }
  }

  // This lane's 16 bytes of a head's row at place 0.
  __device__ const char* piece_of(const PagedRows& rows, int head) const {
    const char* const row = static_cast<const char*>(rows.data) + kElementBytes * (rows.head_stride * head);
    // What the compiler sees as a sum it adds to each row anew.
    return reinterpret_cast<const char*>(ptx::mad_wide(lane_ % 8, 16, reinterpret_cast<int64_t>(row)));
  }

  // The warp's rows of a tile of `pages`, once its stage is empty. `whole`: all are keys of the work tile;
  // else those without a page become zero.
  template <int kPanels>
  __device__ __forceinline__ void copy(const int (&pages)[kRowsOfLane], const RowPlaces& rows,
                                       const char* from, uint32_t empty, uint32_t parity, uint32_t tile,
                                       int head_dim, int first_key, bool whole) const {
    int places[kRowsOfLane];
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r) {
      const int in_page = (first_key + row_[r]) & (params_.attention.index.page_size - 1);
      places[r] = pages[r] * rows.page_units + in_page * rows.slot_units;
    }
    ptx::mbarrier_wait(empty, parity ^ 1);
    if (whole) {
      copy<kPanels, true>(places, from, rows.unit_bytes, tile, head_dim);
    } else {
#pragma unroll
      for (int r = 0; r < kRowsOfLane; ++r) places[r] = pages[r] == kNoPage ? kNoPlace : places[r];
      copy<kPanels, false>(places, from, rows.unit_bytes, tile, head_dim);
    }
  }
  static constexpr int kNoPlace = INT32_MIN;

  // The swizzle is that of eight rows, of which every other four have the other half of a panel's row.
  template <int kPanels, bool kWhole>
  __device__ __forceinline__ void copy(const int (&places)[kRowsOfLane], const char* from, int unit_bytes,
                                       uint32_t tile, int head_dim) const {
    const int first_row = warp_ * kFours * kRowsAtOnce;
    const uint32_t even = tile + swizzled(first_row + lane_ / 8, lane_ % 8), odd = even ^ (kRowsAtOnce << 4);
#pragma unroll
    for (int first = 0; first < kFours; first += kUnderWay) {
      int passed[kUnderWay];
      const char* rows[kUnderWay];
#pragma unroll
      for (int j = first; j < min(first + kUnderWay, kFours); ++j) {
        passed[j - first] = __shfl_sync(0xffffffffu, places[j / 8], j % 8, 8);
        rows[j - first] = from + static_cast<int64_t>(passed[j - first]) * unit_bytes;
      }
#pragma unroll
      for (int j = first; j < min(first + kUnderWay, kFours); ++j) {
        if (j >= kFoursOfLast && warp_ == Tile::kRowWarps - 1) return;
        const uint32_t to = (j % 2 == 0 ? even : odd) + j * kRowsAtOnce * kPanelRowBytes;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          const bool valid = (kWhole || passed[j - first] != kNoPlace) &&
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
  int row_[kRowsOfLane];  // of a tile, those that this lane knows
  PipelineState keys_, values_;
};

}  // namespace attend::kernels::cuda::sm90
