// Producer warps of decode at head dims up to 512 on sm_90a (wide_decode.cuh).
#pragma once

#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/wide_decode/wide_decode_shared.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/metadata/find_page.h"

namespace attend::kernels::cuda::sm90 {

// Loads KV tiles: boxes of rows with TMA, or rows with cp.async. Rows outside of the work tile's keys have
// any content, or are zero.
template <class Tile>
class WideDecodeProducer {
  using Shared = WideDecodeShared<Tile>;
  static constexpr int kRowsOfWarp = kWideKeys / Tile::kRowWarps;
  static_assert(kRowsOfWarp == 32);

 public:
  // `warp`: index among the loading warps.
  __device__ WideDecodeProducer(const WideDecodeParams& params, const Shared& shared, int warp)
      : wide_(params), params_(params.attention), shared_(shared), warp_(warp) {}

  __device__ void run() {
    for (PipelineState place;; place.advance(Tile::kScheduleStages)) {
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      if (wide_.box_rows > 0)
        load_boxes(work_tile);
      else
        load_rows(work_tile);
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  // Returns the page of `num_rows` rows from a position; -1 if none of them is a key of the work tile.
  __device__ int look_up(const MlaWorkTile& work_tile, int position, int num_rows) const {
    const KeyRange& keys = work_tile.keys;
    if (position + num_rows <= keys.begin || position >= keys.end) return -1;
    // A box may begin before the first key, where index entries are undefined.
    const bool contiguous = params_.index.kind == KvIndexKind::kContiguous;
    return find_page(params_.index, work_tile.tile.request,
                     contiguous ? position : max(position, keys.begin));
  }

  // Each lane copies a panel of a box of every unit. Pages are looked up one KV tile ahead.
  __device__ void load_boxes(const MlaWorkTile& work_tile) {
    const int box_rows = wide_.box_rows, num_boxes = kWideKeys / box_rows;
    const int box_row = lane_ % num_boxes * box_rows, panel = lane_ / num_boxes;
    const bool has_panel = panel < Tile::kUnitPanels;
    const int page_mask = params_.index.page_size - 1;
    const int head = work_tile.head, num_tiles = work_tile.num_tiles;
    const uint64_t policy = ptx::createpolicy_evict_first();
    const uint32_t to = static_cast<uint32_t>(panel * Tile::kPanelBytes + box_row * Tile::kPanelRowBytes);
    int position = work_tile.first_key + box_row, next_page = look_up(work_tile, position, box_rows);
    for (int i = 0; i < num_tiles; ++i, position += kWideKeys) {
      const int page = next_page;
      if (i + 1 < num_tiles) next_page = look_up(work_tile, position + kWideKeys, box_rows);
      const bool copies = has_panel && page >= 0;
      const int num_copies = __popc(__ballot_sync(0xffffffffu, copies));
#pragma unroll
      for (int unit = 0; unit < Tile::kUnitsPerTile; ++unit, place_.advance(Tile::kStages)) {
        const uint32_t full = shared_.full(place_.stage);
        ptx::mbarrier_wait(shared_.empty(place_.stage), place_.parity ^ 1);
        if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(full, num_copies * box_rows * Tile::kPanelRowBytes);
        __syncwarp();
        if (copies)
          ptx::cp_async_bulk_tensor(shared_.stage(place_.stage) + to, unit < 2 ? &wide_.k : &wide_.v,
                                    (unit % 2 * Tile::kUnitPanels + panel) * Tile::kPanelColumns, head,
                                    position & page_mask, page, full, policy);
      }
    }
  }

  // Each lane looks up a row, one KV tile ahead. Eight lanes copy 128 bytes of a row.
  __device__ void load_rows(const MlaWorkTile& work_tile) {
    const int row = warp_ * kRowsOfWarp + lane_, num_tiles = work_tile.num_tiles;
    int position = work_tile.first_key + row, next_page = look_up(work_tile, position, 1);
    for (int i = 0; i < num_tiles; ++i, position += kWideKeys) {
      const int page = next_page;
      if (i + 1 < num_tiles) next_page = look_up(work_tile, position + kWideKeys, 1);
      const uint64_t keys = row_address(params_.k, page, position, work_tile.head),
                     values = row_address(params_.v, page, position, work_tile.head);
#pragma unroll 1
      for (int unit = 0; unit < Tile::kUnitsPerTile; ++unit, place_.advance(Tile::kStages)) {
        ptx::mbarrier_wait(shared_.empty(place_.stage), place_.parity ^ 1);
        copy_rows(unit < 2 ? keys : values, unit < 2 ? params_.head_dim_qk : params_.head_dim_v,
                  unit % 2 * Tile::kUnitPanels * Tile::kPanelColumns);
        ptx::cp_async_mbarrier_arrive_noinc(shared_.full(place_.stage));
      }
    }
  }

  // Copies columns of the warp's rows from `first_column`; rows without an address become zero.
  __device__ void copy_rows(uint64_t lane_address, int head_dim, int first_column) const {
    constexpr int kRowsAtOnce = 4;
    const int piece = lane_ % 8, column = first_column + piece * 8;
#pragma unroll 2
    for (int first = 0; first < kRowsOfWarp; first += kRowsAtOnce) {
      const int source = first + lane_ / 8, row = warp_ * kRowsOfWarp + source;
      const uint64_t address = __shfl_sync(0xffffffffu, lane_address, source);
      const char* const from = reinterpret_cast<const char*>(address) + 2 * column;
      const uint32_t to = shared_.stage(place_.stage) + mla_swizzled(row, piece);
#pragma unroll
      for (int panel = 0; panel < Tile::kUnitPanels; ++panel) {
        const bool valid = address != 0 && column + panel * Tile::kPanelColumns < head_dim;
        ptx::cp_async_16(
            to + panel * Tile::kPanelBytes,
            valid ? from + panel * Tile::kPanelRowBytes : static_cast<const char*>(params_.q.data), valid);
      }
    }
  }

  // Returns the global address of a position's row; 0 without a page.
  __device__ uint64_t row_address(const PagedRows& rows, int page, int position, int head) const {
    if (page < 0) return 0;
    const int in_page = position & (params_.index.page_size - 1);
    // Tiled kernels support only 32-bit strides.
    int64_t offset = ptx::mad_wide(page, static_cast<int32_t>(rows.page_stride), 0);
    offset = ptx::mad_wide(in_page, static_cast<int32_t>(rows.token_stride), offset);
    offset = ptx::mad_wide(head, static_cast<int32_t>(rows.head_stride), offset);
    return reinterpret_cast<uint64_t>(rows.data) + static_cast<uint64_t>(2 * offset);
  }

  const WideDecodeParams& wide_;
  const AttentionParams& params_;
  const Shared& shared_;
  const int warp_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  PipelineState place_;
};

// A warp that publishes the work tiles and loads their queries.
template <class Tile, class Plan>
class WideDecodeScheduler {
  using Shared = WideDecodeShared<Tile>;

 public:
  __device__ WideDecodeScheduler(const AttentionParams& params, const Shared& shared)
      : params_(params), shared_(shared) {}

  __device__ void run(const Plan& cta_plan) {
    MlaWalk<Plan, false> walk(params_, cta_plan, shared_.walk());
    if (lane_ == 0) walk.begin();
    uint32_t parity = 0;
    for (PipelineState place;; place.advance(Tile::kScheduleStages), parity ^= 1) {
      if (lane_ == 0) walk.publish(shared_, place);
      __syncwarp();
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_empty(), parity ^ 1);
      copy_queries(work_tile);
      mla_arrive_after_cp_async(shared_.queries_full());
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  // Rows and columns past the end become zero. The lanes copy 512 bytes of a row at a time.
  __device__ void copy_queries(const MlaWorkTile& work_tile) const {
    constexpr int kPiecesOfPanel = 8, kColumnsAtOnce = 256;
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, Tile::kRows);
    const char* const q = static_cast<const char*>(params_.q.data);
#pragma unroll 4
    for (int row = 0; row < Tile::kRows; ++row) {
      const bool is_row = row < rows.num_rows;
      const char* const from = q + 2 * rows.offset_in(params_.q, rows.at(params_, is_row ? row : 0));
#pragma unroll
      for (int first = 0; first < kWideHeadDim; first += kColumnsAtOnce) {
        const int column = first + lane_ * 8, panel = column / Tile::kPanelColumns;
        const bool valid = is_row && column < params_.head_dim_qk;
        ptx::cp_async_16(shared_.queries() + static_cast<uint32_t>(panel * Tile::kQueryPanelBytes) +
                             mla_swizzled(row, lane_ % kPiecesOfPanel),
                         valid ? from + 2 * column : q, valid);
      }
    }
  }

  const AttentionParams& params_;
  const Shared& shared_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
