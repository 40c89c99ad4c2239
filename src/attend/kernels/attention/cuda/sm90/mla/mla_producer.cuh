// Producers of KV tiles for MLA on sm_90a.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/fp8_convert.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Loads KV tiles of 16-bit rows. Values outside of the work tile become zero.
template <bool kPlain>
class MlaProducer {
  // Rows of a tile that a warp copies, and rows per copy: eight lanes copy 128 bytes of a row.
  static constexpr int kRows = kMlaKeys / MlaTile::kLoadWarps, kRowsAtOnce = 4;
  static_assert(kRows == 32);

 public:
  // `warp`: index among the loading warps.
  __device__ MlaProducer(const MlaParams& params, const MlaShared& shared, int warp)
      : params_(params), shared_(shared), warp_(warp) {}

  // `is_early`: the previous kernel may still run and write keys of the new tokens.
  __device__ void run(bool is_early) {
    for (PipelineState place;; place.advance(MlaTile::kScheduleStages)) {
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      if (kPlain || params_.box_rows > 0)
        load<true>(work_tile, is_early);
      else
        load<false>(work_tile, is_early);
      is_early = false;
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  // Loads KV tiles. Pages are looked up one tile ahead: for the lane's box, or for its row.
  template <bool kByBoxes>
  __device__ void load(const MlaWorkTile& work_tile, bool is_early) {
    const int num_tiles = work_tile.num_tiles, prefix = work_tile.tile.seqlen_kv - work_tile.tile.seqlen_q;
    const int request = work_tile.tile.request;
    const KeyRange& keys = work_tile.keys;
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    // Row of the lane in a tile, or the first row of its box.
    const int num_rows = kByBoxes ? params_.box_rows : 1;
    const int row = !kByBoxes                      ? warp_ * kRows + lane_
                    : params_.box_rows == kMlaKeys ? lane_ * kMlaKeys
                                                   : (lane_ * MlaTile::kLoadWarps + warp_) * params_.box_rows;
    const auto look_up = [&](int first) {
      const int position = first + row;
      if (row >= kMlaKeys || position + num_rows <= keys.begin || position >= keys.end) return -1;
      // A box may start before the first key, where index entries are undefined.
      return find_page(params_.attention.index, request, contiguous ? position : max(position, keys.begin));
    };
    int first_key = work_tile.first_key, next_page = look_up(first_key);
    for (int i = 0; i < num_tiles; ++i, first_key += kMlaKeys) {
      const int page = next_page;
      if (i + 1 < num_tiles) next_page = look_up(first_key + kMlaKeys);
      if (is_early && min(first_key + kMlaKeys, keys.end) > prefix) {
        ptx::griddepcontrol_wait();
        is_early = false;
      }
      if constexpr (kByBoxes)
        copy_boxes(page, first_key, row, keys);
      else
        copy_rows(page, first_key + row);
      place_.advance(MlaTile::kStages);
    }
    if (is_early) ptx::griddepcontrol_wait();
  }

  __device__ void wait_for_room(int part) const {
    ptx::mbarrier_wait(shared_.empty(place_.stage, part), place_.parity ^ 1);
  }

  // A box with all rows of a KV tile is the only one of its part; then the warps have different parts.
  __device__ bool has_part(int part) const {
    return params_.box_rows < kMlaKeys || (part == MlaTile::values_part(0)) == (warp_ == 0);
  }

  // A lane with a page copies a box. If not all rows of a KV tile belong to the work tile, a warp clears the
  // other rows of its boxes after they have arrived.
  __device__ void copy_boxes(int page, int first_key, int box_row, const KeyRange& keys) {
    const bool contiguous = params_.attention.index.kind == KvIndexKind::kContiguous;
    const int slot = contiguous ? page : (first_key + box_row) & (params_.attention.index.page_size - 1);
    const int page_or_none = contiguous ? 0 : page;
    const bool is_cut = first_key < keys.begin || first_key + kMlaKeys > keys.end;
    const int panel_bytes =
        __popc(__ballot_sync(0xffffffffu, page >= 0)) * params_.box_rows * kMlaPanelRowBytes;
    const uint64_t policy = ptx::createpolicy_evict_first();
    const uint32_t to = shared_.stage(place_.stage) + box_row * kMlaPanelRowBytes;
    if (is_cut && lane_ == 0) {
      int num_panels = 0;
      for (int part = 0; part < MlaTile::kParts; ++part)
        if (has_part(part)) num_panels += MlaTile::num_panels(part);
      ptx::mbarrier_arrive_expect_tx(shared_.copied(warp_), num_panels * panel_bytes);
    }
#pragma unroll 1
    for (int part = 0; part < MlaTile::kParts; ++part) {
      if (!has_part(part)) continue;
      const uint32_t barrier = is_cut ? shared_.copied(warp_) : shared_.full(place_.stage, part);
      const int first = MlaTile::first_panel(part), num_panels = MlaTile::num_panels(part);
      wait_for_room(part);
      if (!is_cut && lane_ == 0) ptx::mbarrier_arrive_expect_tx(barrier, num_panels * panel_bytes);
      __syncwarp();
      if (page < 0) continue;
      if (params_.box_rows == kMlaKeys) {
        ptx::cp_async_bulk_tensor(to + first * MlaTile::kPanelBytes,
                                  part == MlaTile::kRopePart ? &params_.latent_rope : &params_.latent, 0,
                                  page_or_none, slot, first, barrier, policy);
        continue;
      }
#pragma unroll 1
      for (int panel = first; panel < first + num_panels; ++panel)
        ptx::cp_async_bulk_tensor(to + panel * MlaTile::kPanelBytes, &params_.latent, 0, page_or_none, slot,
                                  panel, barrier, policy);
    }
    if (is_cut) clear_rows(keys.begin - first_key, keys.end - first_key);
  }

  // Sets values of rows outside of [begin, end) to zero: values that are multiplied with a P of 0 must not be
  // infinite or NaN. Their scores are masked.
  __device__ void clear_rows(int begin, int end) {
    __syncwarp();
    const uint32_t parity = shared_.copied_parity(warp_);
    ptx::mbarrier_wait(shared_.copied(warp_), parity);
    __syncwarp();
    if (lane_ == 0) shared_.copied_parity(warp_) = parity ^ 1;
    // Warp's half of the columns, or rows of its boxes: sizes are powers of two.
    const bool is_one = params_.box_rows == kMlaKeys;
    const uint32_t to = shared_.stage(place_.stage) + lane_ % 8 * 16 +
                        (is_one ? warp_ * MlaTile::kPanelsPerHalf * MlaTile::kPanelBytes : 0);
    const int num_panels = is_one ? MlaTile::kPanelsPerHalf : MlaTile::kValuePanels;
#pragma unroll 1
    for (int row = lane_ / 8; row < kMlaKeys; row += kRowsAtOnce) {
      if (row >= begin && row < end) continue;
      if (!is_one && ((row & params_.box_rows) != 0) != (warp_ != 0)) continue;
#pragma unroll 1
      for (int panel = 0; panel < num_panels; panel += MlaTile::kPanelsPerHalf)
#pragma unroll
        for (int i = 0; i < MlaTile::kPanelsPerHalf; ++i)
          ptx::st_shared_16(to + (panel + i) * MlaTile::kPanelBytes + row * kMlaPanelRowBytes,
                            make_uint4(0, 0, 0, 0));
    }
    ptx::fence_proxy_async();
#pragma unroll 1
    for (int part = 0; part < MlaTile::kParts; ++part)
      if (has_part(part)) arrive_as_warp(shared_.full(place_.stage, part));
  }

  // Rows without a page become zero. `position`: position of the lane's row.
  __device__ void copy_rows(int page, int position) const {
    const uint64_t lane_address = mla_row_address(params_.attention, page, position, 2);
#pragma unroll 1
    for (int third = 0; third < MlaTile::kThirds; ++third) {
      wait_for_room(MlaTile::third_part(third));
#pragma unroll 2
      for (int first = 0; first < kRows; first += kRowsAtOnce) {
        const int row = first + lane_ / 8;
        const uint64_t address = __shfl_sync(0xffffffffu, lane_address, row);
        copy_row(third * MlaTile::kPanelsPerThird, warp_ * kRows + row, address);
      }
      mla_arrive_after_cp_async(shared_.full(place_.stage, third));
    }
  }

  // Copies this lane's 16 bytes of several panels of a row.
  __device__ void copy_row(int first_panel, int row, uint64_t address) const {
    const int column = first_panel * kMlaPanelColumns + lane_ % 8 * 8;
    const char* const from = reinterpret_cast<const char*>(address) + 2 * column;
    const uint32_t to =
        shared_.stage(place_.stage) + first_panel * MlaTile::kPanelBytes + mla_swizzled(row, lane_ % 8);
#pragma unroll
    for (int i = 0; i < MlaTile::kPanelsPerThird; ++i) {
      const bool valid = address != 0 && column + i * kMlaPanelColumns < params_.attention.head_dim_qk;
      ptx::cp_async_16(to + i * MlaTile::kPanelBytes, from + i * kMlaPanelRowBytes, valid);
    }
  }

  const MlaParams& params_;
  const MlaShared& shared_;
  const int warp_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  PipelineState place_;
};

// fp8 rows for MLA on sm_90a: the producer warps load them to registers, and store them to shared memory in
// the dtype of the queries.

// Each of the producer warps has 16 rows of a KV tile, and of the queries; the first one publishes the work
// tiles. `T`: dtype of the queries.
//
// Rows are prefetched to L2 two KV tiles before they are converted, and loaded to registers a third of a tile
// before: a lane has six 16-byte loads in flight while the previous six are converted to 32 bytes each.
template <class T, class Plan, bool kPlain>
class MlaConverter {
  static constexpr int kRows = kMlaKeys / MlaTile::kProducerWarps;  // per warp
  // Four lanes have 64 bytes of a row, the columns of a panel; a warp loads eight rows together.
  static constexpr int kLanesPerRow = kMlaPanelColumns / 16, kRowsAtOnce = 32 / kLanesPerRow;
  static constexpr int kHalves = kRows / kRowsAtOnce;
  static constexpr int kPieces = MlaTile::kPanelsPerThird * kHalves;  // 16-byte pieces per lane and third
  static constexpr int kThirdColumns = MlaTile::kPanelsPerThird * kMlaPanelColumns;

 public:
  __device__ MlaConverter(const MlaParams& params, const MlaShared& shared)
      : mla_(params), params_(params.attention), shared_(shared) {}

  // Registers are limited: stages and parities of pipelines are derived from counts, values that depend on
  // the lane are recomputed, and the work tile is read at its use.
  __device__ void run(const Plan& cta_plan) {
    if (publishes()) MlaWalk<Plan, kPlain>(params_, cta_plan, shared_.walk()).begin();
#pragma unroll 1
    for (int num_work_tiles = 0;; ++num_work_tiles) {
      const PipelineState place{num_work_tiles % MlaTile::kScheduleStages,
                                static_cast<uint32_t>(num_work_tiles / MlaTile::kScheduleStages & 1)};
      if (publishes()) MlaWalk<Plan, kPlain>(params_, cta_plan, shared_.walk()).publish(shared_, place);
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      if (params_.kv_element == Element::kF8E4M3)
        load<Element::kF8E4M3>(work_tile, static_cast<uint32_t>(num_work_tiles & 1));
      else
        load<Element::kF8E5M2>(work_tile, static_cast<uint32_t>(num_work_tiles & 1));
      arrive_as_warp(shared_.schedule_empty(num_work_tiles % MlaTile::kScheduleStages));
    }
  }

 private:
  using Bytes = uint4[kPieces];
  // Addresses of this lane's 16 bytes of a panel in its rows; 0: the row becomes zero.
  struct Rows {
    uint64_t address[kHalves];
  };

  __device__ static int lane() { return ptx::tid_x() % 32; }
  __device__ static bool publishes() { return ptx::tid_x() == 0; }

  // Returns the position of the row of a KV tile that this lane looks up. Lanes past the warp's rows repeat
  // those of lower lanes.
  __device__ __forceinline__ int query_position(const MlaWorkTile& work_tile, int tile) const {
    const int thread = ptx::tid_x();
    return work_tile.first_key + tile * kMlaKeys + thread / 32 * kRows + thread % kRows;
  }
  // Returns its page; -1: outside of the work tile.
  __device__ __forceinline__ int look_up(const MlaWorkTile& work_tile, int tile) const {
    const int position = query_position(work_tile, tile);
    if (position < work_tile.keys.begin || position >= work_tile.keys.end) return -1;
    return find_page(params_.index, work_tile.tile.request, position);
  }
  __device__ __forceinline__ uint64_t row_address(const MlaWorkTile& work_tile, int page, int tile) const {
    return mla_row_address(params_, page, query_position(work_tile, tile), 1);
  }

  template <Element kElement>
  __device__ __forceinline__ void load(const MlaWorkTile& work_tile, uint32_t parity) {
    Rows rows;
    int next_page;
    {
      const int page = look_up(work_tile, 0);
      next_page = look_up(work_tile, 1);
      // Rows may be prefetched to L2 before the previous kernel has written those of new tokens.
      prefetch(row_address(work_tile, page, 0));
      prefetch(row_address(work_tile, next_page, 1));
      MlaQueries<MlaTile::kProducerWarps, kPlain>(mla_, shared_, ptx::tid_x() / 32).copy(work_tile, parity);
      rows = rows_at(row_address(work_tile, page, 0));
    }
    Bytes bytes;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) bytes[i] = read(rows, 0, i);
#pragma unroll 1
    for (int tile = 0; tile < work_tile.num_tiles; ++tile, ++num_tiles_) {
      const int later_page = look_up(work_tile, tile + 2);
#pragma unroll 1
      for (int third = 0; third < MlaTile::kThirds; ++third) {
        const bool ends = third + 1 == MlaTile::kThirds;
        if (ends) {
          // There are no pages past the last KV tile.
          rows = rows_at(row_address(work_tile, next_page, tile + 1));
          prefetch(row_address(work_tile, later_page, tile + 2));
        }
        convert<kElement>(bytes, rows, third, ends ? 0 : (third + 1) * kThirdColumns);
      }
      next_page = later_page;
    }
  }

  // Stores `bytes` to a third of a stage, and reloads them with the pieces of `rows` from `next_column`.
  template <Element kElement>
  __device__ __forceinline__ void convert(Bytes& bytes, const Rows& rows, int third, int next_column) const {
    const int stage = num_tiles_ % MlaTile::kStages;
    ptx::mbarrier_wait(shared_.empty(stage, MlaTile::third_part(third)),
                       static_cast<uint32_t>(num_tiles_ / MlaTile::kStages & 1) ^ 1);
    const int thread = ptx::tid_x();
    const int row = thread / 32 * kRows + thread % 32 / kLanesPerRow, piece = 2 * (thread % kLanesPerRow);
    const uint32_t to = shared_.stage(stage) + third * MlaTile::kPanelsPerThird * MlaTile::kPanelBytes +
                        mla_swizzled(row, piece);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      // Rows eight further have the same swizzle; the second piece of two is next to the first.
      const uint32_t to_piece =
          to + i / kHalves * MlaTile::kPanelBytes + i % kHalves * kRowsAtOnce * kMlaPanelRowBytes;
      ptx::st_shared_16(to_piece, converted<kElement>(bytes[i].x, bytes[i].y));
      ptx::st_shared_16(to_piece ^ 16, converted<kElement>(bytes[i].z, bytes[i].w));
      bytes[i] = read(rows, next_column, i);
    }
    ptx::fence_proxy_async();
    arrive_as_warp(shared_.full(stage, third));
  }

  // Distributes the addresses of the rows that the lanes have looked up.
  __device__ __forceinline__ Rows rows_at(uint64_t lane_address) const {
    const int lane = this->lane();
    Rows rows;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const uint64_t row = __shfl_sync(0xffffffffu, lane_address, half * kRowsAtOnce + lane / kLanesPerRow);
      rows.address[half] = row == 0 ? 0 : row + static_cast<uint64_t>(lane % kLanesPerRow * 16);
    }
    return rows;
  }

  // Loads piece i: a row of one half and a panel from `first_column`.
  __device__ __forceinline__ uint4 read(const Rows& rows, int first_column, int i) const {
    const int column = first_column + i / kHalves * kMlaPanelColumns;
    const uint64_t address = rows.address[i % kHalves];
    // A lane's 16 bytes start at a multiple of 16, and rows have whole pieces.
    return ptx::ld_global_16_past_l1(address + static_cast<uint64_t>(column),
                                     address != 0 && column < params_.head_dim_qk - lane_column());
  }
  __device__ static int lane_column() { return static_cast<int>(threadIdx.x) % kLanesPerRow * 16; }

  // Executed by the lanes of the warp's rows.
  __device__ __forceinline__ void prefetch(uint64_t lane_address) const {
    if (lane() < kRows && lane_address != 0)
      ptx::cp_async_bulk_prefetch_l2(lane_address, static_cast<uint32_t>(params_.head_dim_qk));
  }

  // Converts eight elements to the dtype of q.
  template <Element kElement>
  __device__ __forceinline__ static uint4 converted(uint32_t low, uint32_t high) {
    return make_uint4(as_query(low_pair<kElement>(low)), as_query(high_pair<kElement>(low)),
                      as_query(low_pair<kElement>(high)), as_query(high_pair<kElement>(high)));
  }
  // Converts two f16 values. bf16 represents every fp8 value exactly too.
  __device__ __forceinline__ static uint32_t as_query(uint32_t pair) {
    if constexpr (std::is_same_v<T, __half>) return pair;
    const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return pack(values.x, values.y, T());
  }

  const MlaParams& mla_;
  const AttentionParams& params_;
  const MlaShared& shared_;
  int num_tiles_ = 0;  // tiles converted so far
};

}  // namespace attend::kernels::cuda::sm90
