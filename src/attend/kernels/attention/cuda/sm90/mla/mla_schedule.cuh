// Which work tiles a CTA of MLA on sm_90a has, and the copies of their queries.
#pragma once

#include "attend/kernels/attention/cuda/common/plan/cta_plan.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// The work_tiles of a CTA, one after another: its share of a streamed plan, else every gridDim.x-th row tile
// and head. By one thread. Where it stands is in shared memory: registers are short.
template <class Plan, bool kPlain>
class MlaWalk {
 public:
  // `walk`: as the plan says where the CTA begins, else with the header alone.
  __device__ MlaWalk(const MlaParams& params, const Plan& cta_plan, PlanStart& walk)
      : params_(params.attention), cta_plan_(cta_plan), walk_(walk) {}

  // Before publish().
  __device__ void begin() {
    if (!params_.plan.streamed) next_work_tile() = static_cast<int>(blockIdx.x);
  }

  // The next work tile, or that there is none, as soon as `place` is free for it.
  __device__ void publish(const MlaShared& shared, const PipelineState& place) {
    ptx::mbarrier_wait(shared.schedule_empty(place.stage), place.parity ^ 1);
    next(shared.work_tile(place.stage));
    ptx::mbarrier_arrive(shared.schedule_full(place.stage));
  }

 private:
  __device__ void next(MlaWorkTile& work_tile) {
    work_tile.num_tiles = -1;
    if (params_.plan.streamed)
      next_of_share(work_tile);
    else
      next_whole(work_tile);
  }

  __device__ void next_of_share(MlaWorkTile& work_tile) {
    CtaStart& at = walk_.cta;
    if (at.length <= 0) return;
    const PlanView& plan = params_.plan;
    const KvTileRange part =
        range_at<false>(plan, static_cast<int>(blockIdx.x), at.tile, at.head, at.first,
                              min(at.tile.num_kv_tiles - at.first, at.length));
    make(work_tile, at.tile, at.head, part);
    at.length -= part.count + walk_.header.line.gap;
    if (at.length <= 0) return;
    at.first = 0;
    at.head += plan.heads_at_once;
    if (at.head < params_.num_kv_heads) return;
    at.tile = cta_plan_.tile_after(at.tile);
    at.head -= params_.num_kv_heads;
  }

  // Heads fastest: CTAs beside one another read the same keys.
  __device__ void next_whole(MlaWorkTile& work_tile) {
    const int work_tile_idx = next_work_tile();
    if (work_tile_idx >= walk_.header.num_row_tiles * params_.num_kv_heads) return;
    const RowTile& tile = params_.plan.row_tiles[work_tile_idx / params_.num_kv_heads];
    make(work_tile, tile, work_tile_idx % params_.num_kv_heads, {0, tile.num_kv_tiles, -1, true});
    next_work_tile() = work_tile_idx + static_cast<int>(gridDim.x);
  }
  // Of a whole plan, which has no starts.
  __device__ int& next_work_tile() const { return walk_.cta.first; }

  __device__ void make(MlaWorkTile& work_tile, const RowTile& tile, int head,
                       const KvTileRange& part) const {
    const BatchParams& batch = params_.batch;
    work_tile.tile = tile;
    work_tile.head = head;
    work_tile.partial_idx = part.partial_idx;
    const WorkTileRows rows(params_, tile, head, params_.plan.tile_rows);
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    // The plan may be one of a layer without a window.
    if (!kPlain && (batch.window_left >= 0 || batch.chunk > 0))
      narrow(work_tile.tile, key_range(batch, rows.span, j_first, j_last));
    const int begin = work_tile.tile.kv_begin, end = work_tile.tile.kv_end;
    const int kv_tile_keys = params_.plan.kv_tile_keys;
    const int part_begin = (tile.first_kv_tile + part.first) * kv_tile_keys;
    work_tile.first_key = max(part_begin, begin / kMlaKeys * kMlaKeys);
    work_tile.keys = {max(begin, part_begin), min(part_begin + part.count * kv_tile_keys, end)};
    work_tile.full = {0, 0};
    if constexpr (kPlain)
      work_tile.full = whole_tiles(work_tile, {0, mla_plain_end(batch, rows.span, j_first)});
    else if (batch.tree_mask == nullptr || !batch.causal)
      work_tile.full = whole_tiles(work_tile, full_key_range(batch, rows.span, j_first, j_last));
    work_tile.num_tiles = max(0, (work_tile.keys.end - work_tile.first_key + kMlaKeys - 1) / kMlaKeys);
  }

  // KV tiles of the work_tile that have keys of this range alone.
  __device__ static KeyRange whole_tiles(const MlaWorkTile& work_tile, const KeyRange& keys) {
    return {(max(0, keys.begin - work_tile.first_key) + kMlaKeys - 1) / kMlaKeys,
            max(0, keys.end - work_tile.first_key) / kMlaKeys};
  }

  const AttentionParams& params_;
  const Plan& cta_plan_;
  PlanStart& walk_;
};

// Copies queries of work tiles, each of `kWarps` warps its part of the rows.
template <int kWarps, bool kPlain>
class MlaQueries {
  // More warps have fewer registers left beside.
  static constexpr int kPanelsAtOnce = kWarps > 2 ? 1 : MlaTile::kPanels;

 public:
  __device__ MlaQueries(const MlaParams& params, const MlaShared& shared, int warp)
      : mla_(params), params_(params.attention), shared_(shared), warp_(warp) {}

  // `parity`: of the work tile among the CTA's.
  __device__ void copy(const MlaWorkTile& work_tile, uint32_t parity) const {
    ptx::mbarrier_wait(shared_.queries_empty(), parity ^ 1);
    // Queries are never ready before their kernel.
    ptx::griddepcontrol_wait();
    if (kPlain || mla_.boxes_queries) {
      copy_boxes(work_tile);
    } else {
      copy_rows(work_tile);
      mla_arrive_after_cp_async(shared_.queries_full());
    }
  }

 private:
  // By TMA. Rows beyond the tile's are other tokens', or zero: they come to nothing.
  __device__ void copy_boxes(const MlaWorkTile& work_tile) const {
    if (lane_ != 0) return;
    if (warp_ != 0) return ptx::mbarrier_arrive(shared_.queries_full());
    const RowTile& tile = work_tile.tile;
    // A tile's first row is one of its first query's.
    int token = tile.first_token + tile.first_query;
    int head = work_tile.head * params_.group + tile.row_begin - tile.first_query * params_.group;
    if (mla_.queries_in_sequence) {
      head += token * params_.num_q_heads;
      token = 0;
    }
    const uint64_t policy = ptx::createpolicy_evict_first();
    ptx::mbarrier_arrive_expect_tx(shared_.queries_full(), MlaTile::kQueryBytes);
#pragma unroll kPanelsAtOnce
    for (int panel = 0; panel < MlaTile::kPanels; ++panel) {
      const bool is_rope = panel == MlaTile::kValuePanels;
      ptx::cp_async_bulk_tensor(shared_.queries() + panel * MlaTile::kPanelBytes,
                                is_rope ? &mla_.q_rope : &mla_.q, is_rope ? 0 : panel * kMlaPanelColumns,
                                head, token, shared_.queries_full(), policy);
    }
  }

  // Columns of q, then those of q_rope. Rows and columns beyond are zero. Eight lanes copy 128 bytes of a
  // row.
  __device__ void copy_rows(const MlaWorkTile& work_tile) const {
    constexpr int kRowsOfWarp = kMlaRows / kWarps, kRowsAtOnce = 4;
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, params_.plan.tile_rows);
    const char* const none = static_cast<const char*>(params_.q.data);
    const int num_nope = params_.head_dim_qk - params_.rope_dim, piece = lane_ % 8;
#pragma unroll 1
    for (int i = lane_ / 8; i < kRowsOfWarp; i += kRowsAtOnce) {
      const int tile_row = warp_ * kRowsOfWarp + i;
      const bool is_row = tile_row < rows.num_rows;
      const TileRow row = rows.at(params_, is_row ? tile_row : 0);
      const int64_t token = rows.span.first_token + row.query;
      const char* const nope = none + 2 * (token * params_.q.token_stride + row.head * params_.q.head_stride);
      const char* const rope =
          static_cast<const char*>(params_.q_rope.data) +
          2 * (token * params_.q_rope.token_stride + row.head * params_.q_rope.head_stride);
#pragma unroll kPanelsAtOnce
      for (int panel = 0; panel < MlaTile::kPanels; ++panel) {
        const int column = panel * kMlaPanelColumns + piece * 8;
        const bool valid = is_row && column < params_.head_dim_qk;
        const char* const from = column < num_nope ? nope + 2 * column : rope + 2 * (column - num_nope);
        ptx::cp_async_16(shared_.queries() + panel * MlaTile::kPanelBytes + mla_swizzled(tile_row, piece),
                         valid ? from : none, valid);
      }
    }
  }

  const MlaParams& mla_;
  const AttentionParams& params_;
  const MlaShared& shared_;
  const int warp_;
  // Of more warps read anew, so that what follows from it is in no register meanwhile.
  const int lane_ = (kWarps > 2 ? ptx::tid_x() : static_cast<int>(threadIdx.x)) % 32;
};

// Two warps that bring the queries; the first publishes the work tiles.
template <class Plan, bool kPlain>
class MlaScheduler {
 public:
  __device__ MlaScheduler(const MlaParams& params, const MlaShared& shared, int warp)
      : params_(params),
        shared_(shared),
        queries_(params, shared, warp),
        publishes_(warp == 0 && lane() == 0) {}

  __device__ void run(const Plan& cta_plan) {
    MlaWalk<Plan, kPlain> walk(params_, cta_plan, shared_.walk());
    if (publishes_) walk.begin();
    uint32_t parity = 0;
    for (PipelineState place;; place.advance(MlaTile::kScheduleStages), parity ^= 1) {
      if (publishes_) walk.publish(shared_, place);
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      if (work_tile.num_tiles < 0) return;
      queries_.copy(work_tile, parity);
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  const MlaParams& params_;
  const MlaShared& shared_;
  const MlaQueries<MlaTile::kQueryWarps, kPlain> queries_;
  const bool publishes_;
};

}  // namespace attend::kernels::cuda::sm90
