// What attention of many rows on sm_90a computes, one work tile after another, and how its tiles lie in
// shared memory: for the kernels whose warps do it, of 16 bits (prefill.cuh) and of e4m3 (prefill_e4m3.cuh).
#pragma once

#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_kernel.h"

namespace attend::kernels::cuda::sm90 {

// A tile of rows lies in panels of 128 bytes of each row, one after another; a panel's rows are in TMA's
// 128-byte swizzle.
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kSwizzleAtom = 1024;  // eight such rows: what tiles are aligned to

// Where 16 bytes of a row of a panel lie, from the panel's begin.
__device__ inline uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kPanelRowBytes + ((piece ^ (row & 7)) << 4));
}

// A row tile and a KV head, with all keys that they see or, where CTAs divide keys, a part of them.
struct alignas(16) PrefillWorkTile {
  RowTile tile;  // whose keys are narrowed to those of this layer and of the part
  int32_t head;
  int32_t partial_idx;  // of the partial result; -1: the result is final
  int32_t first_key;    // of the first key tile
  int32_t num_tiles;    // -1: there are no more work tiles
  KeyRange full;        // keys that every row sees, of those
  int32_t num_rows;
  int32_t num_staged_rows;  // rows whose results TMA may store: those of a work tile with final results, or 0
};

// Results that a consumer leaves in the place of its queries.
struct alignas(16) StagedResults {
  int token, head;  // of the work tile's first row, and its first query head
  int num_rows;     // of the work tile; 0: none of its results are left there
};

// Rows of a work tile: three warpgroups of consumers have more than a row tile, unless CTAs divide keys.
template <class Tile>
__device__ __forceinline__ int most_rows(const AttentionParams& params) {
  return Tile::kRows > kPrefillRows && divides_keys(params.plan) ? kPrefillRows : Tile::kRows;
}

// A plan that CTAs derive themselves, where they divide the keys of few rows.
template <class Tile>
using InlinePlan = CtaPlan<Tile::kThreads, true>;

// Of the batch, by its plan, which is derived here where CTAs do that. All threads call it, once.
template <class Tile>
__device__ int num_planned_tokens(const AttentionParams& params) {
  if constexpr (Tile::kMayPlanInline)
    if (params.plan.inline_plan)
      return InlinePlan<Tile>(params).start(static_cast<int>(blockIdx.x)).header.num_tokens;
  return params.plan.header->num_tokens;
}

// The line of a streamed plan, after num_planned_tokens().
template <class Tile>
__device__ PlanLine line_of(const AttentionParams& params) {
  if constexpr (Tile::kMayPlanInline)
    if (params.plan.inline_plan) return InlinePlan<Tile>::derived_start().header.line;
  return params.plan.header->line;
}

// The work tiles of a CTA, one after another. They are taken in the order of the plan, heads fastest: the
// first of every CTA is that of its index, and each CTA takes another as soon as it has published the one
// before (an atomic counter). Who computes a work tile changes no bit. Where CTAs divide keys, they are those
// of the CTA's range. By one thread.
template <class Tile>
class PrefillWalk {
 public:
  __device__ explicit PrefillWalk(const PrefillParams& params)
      : params_(params.attention),
        progress_(params.progress),
        divides_keys_(divides_keys(params_.plan)),
        stores_boxes_(params.stores_boxes) {}

  __device__ void begin() {
    const PlanView& plan = params_.plan;
    const int cta = static_cast<int>(blockIdx.x);
    if constexpr (Tile::kMayPlanInline)
      if (plan.inline_plan) return begin_at(InlinePlan<Tile>::derived_start());
    const PlanHeader header = *plan.header;
    if (divides_keys_) {
      // All loads at once; there is no start behind the line.
      PlanStart start{header, plan.cta_starts[cta]};
      if (cta / plan.heads_at_once * header.line.cta_range >= header.line_length) start.cta.length = 0;
      begin_at(start);
    } else {
      work_tile_idx_ = cta;
      num_work_tiles_ = header.num_row_tiles * params_.num_kv_heads;
    }
  }

  // After begin() and advance(), before the others.
  __device__ void find() {
    if (divides_keys_) return;
    for (; work_tile_idx_ < num_work_tiles_; advance()) {
      tile_ = params_.plan.row_tiles[work_tile_idx_ / params_.num_kv_heads];
      if (begins_work_tile()) break;
    }
    head_ = work_tile_idx_ % params_.num_kv_heads;
  }
  __device__ bool has_ended() const { return divides_keys_ ? left_ <= 0 : work_tile_idx_ >= num_work_tiles_; }

  // Of the next work tile; 1 where there is none.
  __device__ HeadDescales descales() const {
    if (has_ended()) return {1.0f, 1.0f};
    return descales_of(params_, tile_.request, head_);
  }

  __device__ void write(PrefillWorkTile& work_tile) {
    PrefillWorkTile made = make_work_tile();
    if (divides_keys_) {
      const KvTileRange part =
          range_at<false>(params_.plan, static_cast<int>(blockIdx.x), made.tile, head_, first_,
                                min(made.tile.num_kv_tiles - first_, left_));
      left_ -= part.count;
      made.partial_idx = part.partial_idx;
      const int part_begin = (made.tile.first_kv_tile + part.first) * kKeyTile;
      made.tile.kv_begin = max(made.tile.kv_begin, part_begin);
      made.tile.kv_end = max(made.tile.kv_begin, min(made.tile.kv_end, part_begin + part.count * kKeyTile));
      made.full = {max(made.full.begin, made.tile.kv_begin), min(made.full.end, made.tile.kv_end)};
    }
    made.first_key = made.tile.kv_begin / Tile::kMaxBoxRows * Tile::kMaxBoxRows;
    if (made.tile.kv_begin < made.tile.kv_end)
      made.num_tiles = (made.tile.kv_end - made.first_key + Tile::kKeys - 1) / Tile::kKeys;
    if (stores_boxes_ && made.partial_idx < 0) made.num_staged_rows = made.num_rows;
    work_tile = made;
  }

  __device__ void advance() {
    if (!divides_keys_) {
      work_tile_idx_ = static_cast<int>(gridDim.x) + atomicAdd(progress_, 1);
      return;
    }
    left_ -= gap_;
    first_ = 0;
    head_ += params_.plan.heads_at_once;
    if (head_ < params_.num_kv_heads) return;
    head_ -= params_.num_kv_heads;
    if (left_ > 0) tile_ = tile_after();
  }

  // The last CTA to end resets the counters.
  __device__ void end() const {
    if (divides_keys_ || atomicAdd(progress_ + 1, 1) + 1 < static_cast<int>(gridDim.x)) return;
    progress_[0] = 0;
    progress_[1] = 0;
  }

 private:
  __device__ void begin_at(const PlanStart& start) {
    tile_ = start.cta.tile;
    head_ = start.cta.head;
    first_ = start.cta.first;
    left_ = start.cta.length;
    gap_ = start.header.line.gap;
  }
  __device__ RowTile tile_after() const {
    if constexpr (Tile::kMayPlanInline)
      if (params_.plan.inline_plan) return InlinePlan<Tile>(params_).tile_after(tile_);
    return params_.plan.row_tiles[tile_.index + 1];
  }

  // Where the plan's row tiles are lower than a work tile, most of those that follow the first belong to its
  // work tile. A work tile may begin within a row tile, which then begins there.
  __device__ bool begins_work_tile() {
    if constexpr (Tile::kRows <= kPrefillRows) return tile_.row_begin % Tile::kRows == 0;
    const int row = (tile_.row_begin + Tile::kRows - 1) / Tile::kRows * Tile::kRows;
    if (row >= tile_.row_begin + params_.plan.tile_rows || row >= tile_.seqlen_q * params_.group)
      return false;
    tile_.row_begin = row;
    tile_.first_query =
        params_.group == 1 ? row
                           : static_cast<int>(__umulhi(static_cast<uint32_t>(row), params_.group_reciprocal));
    return true;
  }

  // With all keys of the row tile.
  __device__ PrefillWorkTile make_work_tile() const {
    const BatchParams& batch = params_.batch;
    PrefillWorkTile work_tile{};
    work_tile.head = head_;
    work_tile.partial_idx = -1;
    work_tile.tile = tile_;
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, most_rows<Tile>(params_));
    work_tile.num_rows = rows.num_rows;
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    // The plan may be one of a layer without a window, its row tiles lower.
    const VisibleRange of_first =
                           visible_range(batch, rows.span, position_of<false>(batch, rows.span, j_first)),
                       of_last =
                           visible_range(batch, rows.span, position_of<false>(batch, rows.span, j_last));
    work_tile.tile.kv_begin = of_first.lo;
    work_tile.tile.kv_end = max(of_first.lo, of_last.hi + 1);
    work_tile.full = {of_last.lo, of_first.hi + 1};
    return work_tile;
  }

  const AttentionParams& params_;
  int32_t* const progress_;
  const bool divides_keys_, stores_boxes_;
  RowTile tile_{};
  int head_ = 0;
  // Where keys are divided: the CTA's first KV tile of the row tile, and what is left of its range.
  int first_ = 0, left_ = 0, gap_ = 0;
  // Else.
  int work_tile_idx_ = 0, num_work_tiles_ = 0;
};

}  // namespace attend::kernels::cuda::sm90
