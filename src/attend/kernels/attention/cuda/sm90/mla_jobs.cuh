// Which work tiles a CTA of MLA computes, and their queries on the way into shared memory.
#pragma once

#include "attend/kernels/attention/cuda/common/plan_walk.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_shared.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"

namespace attend::kernels::cuda::sm90 {

// The jobs of a CTA, one after another: its share of a streamed plan, else every gridDim.x-th row tile and
// head. By one thread.
template <class Plan>
class MlaWalk {
 public:
  __device__ MlaWalk(const MlaParams& params, const Plan& cta_plan, sm80::PlanStart& walk)
      : params_(params.attention), box_rows_(params.box_rows), cta_plan_(cta_plan), at_(walk.cta) {
    const PlanView& plan = params_.plan;
    const int cta = static_cast<int>(blockIdx.x);
    if (plan.streamed) {
      const int units = walk.header.units_per_cta;
      left_ = min(units, walk.header.num_units - cta / plan.heads_at_once * units);
    } else {
      next_job_ = cta;
      left_ = walk.header.num_row_tiles * params_.num_kv_heads;
    }
  }

  __device__ void next(MlaJob& job) {
    job.num_tiles = -1;
    if (params_.plan.streamed)
      next_of_share(job);
    else
      next_whole(job);
  }

 private:
  __device__ void next_of_share(MlaJob& job) {
    if (left_ <= 0) return;
    const PlanView& plan = params_.plan;
    const sm80::JobPart part =
        sm80::part_at<false>(plan, at_.tile, at_.head, at_.first, min(at_.tile.num_units - at_.first, left_));
    make(job, at_.tile, at_.head, part);
    left_ -= part.count;
    if (left_ <= 0) return;
    at_.first = 0;
    at_.head += plan.heads_at_once;
    if (at_.head < params_.num_kv_heads) return;
    at_.tile = cta_plan_.tile_after(at_.tile);
    at_.head -= params_.num_kv_heads;
  }

  // Heads fastest: CTAs beside one another read the same keys.
  __device__ void next_whole(MlaJob& job) {
    if (next_job_ >= left_) return;
    const RowTile& tile = params_.plan.row_tiles[next_job_ / params_.num_kv_heads];
    make(job, tile, next_job_ % params_.num_kv_heads, {0, tile.num_units, -1, true});
    next_job_ += static_cast<int>(gridDim.x);
  }

  __device__ void make(MlaJob& job, const RowTile& tile, int head, const sm80::JobPart& part) const {
    const BatchParams& batch = params_.batch;
    job.tile = tile;
    job.head = head;
    job.slot = part.slot;
    const sm80::JobRows rows(params_, tile, head, params_.plan.tile_rows);
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    int begin = tile.kv_begin;
    // The plan may be one of a layer without a window.
    if (batch.window_left >= 0 || batch.chunk > 0)
      begin = max(begin, key_range(batch, rows.span, j_first, j_last).begin);
    const int unit_keys = params_.plan.unit_keys;
    const int part_begin = (tile.first_unit + part.first) * unit_keys;
    job.first_key = max(part_begin, begin / kMlaKeys * kMlaKeys);
    job.keys = {max(begin, part_begin), min(part_begin + part.count * unit_keys, tile.kv_end)};
    job.boxes = box_rows_ > 0 ? whole_tiles(job, job.keys) : KeyRange{0, 0};
    job.full = {0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      job.full = whole_tiles(job, {first_visible(batch, position_of(batch, rows.span, j_last)),
                                   min(position_of(batch, rows.span, j_first) + 1, rows.span.seqlen_kv)});
    job.num_tiles = max(0, (job.keys.end - job.first_key + kMlaKeys - 1) / kMlaKeys);
  }

  // KV tiles of the job that have keys of this range alone.
  __device__ static KeyRange whole_tiles(const MlaJob& job, const KeyRange& keys) {
    return {(max(0, keys.begin - job.first_key) + kMlaKeys - 1) / kMlaKeys,
            max(0, keys.end - job.first_key) / kMlaKeys};
  }

  const AttentionParams& params_;
  const int box_rows_;
  const Plan& cta_plan_;
  CtaStart& at_;
  int left_;  // units of the share, or jobs of the whole plan
  int next_job_ = 0;
};

// Two warps, each half of the rows of queries; the first tells all warps what there is to do.
template <class Plan>
class MlaJobs {
 public:
  __device__ MlaJobs(const MlaParams& params, const MlaShared& shared, int warp)
      : mla_(params), params_(params.attention), shared_(shared), warp_(warp) {}

  __device__ void run(const Plan& cta_plan) {
    MlaWalk<Plan> walk(mla_, cta_plan, shared_.walk());
    const bool tells = warp_ == 0 && lane_ == 0;
    uint32_t parity = 0;
    for (RingPlace place;; place.advance(MlaTile::kJobSlots), parity ^= 1) {
      if (tells) {
        ptx::wait_for_phase(shared_.job_done(place.slot), place.parity ^ 1);
        walk.next(shared_.job(place.slot));
        ptx::arrive(shared_.job_told(place.slot));
      }
      ptx::wait_for_phase(shared_.job_told(place.slot), place.parity);
      const MlaJob& job = shared_.job(place.slot);
      if (job.num_tiles < 0) return;
      ptx::wait_for_phase(shared_.queries_empty(), parity ^ 1);
      // Queries are never settled early.
      ptx::wait_for_previous_kernel();
      if (mla_.boxes_queries) {
        copy_boxes(job);
      } else {
        copy_queries(job);
        arrive_after_copies(shared_.queries_full());
      }
      arrive_as_warp(shared_.job_done(place.slot));
    }
  }

 private:
  // By TMA. Rows beyond the tile's are other tokens', or what was there: they come to nothing.
  __device__ void copy_boxes(const MlaJob& job) const {
    if (lane_ != 0) return;
    if (warp_ != 0) return ptx::arrive(shared_.queries_full());
    const sm80::JobRows rows(params_, job.tile, job.head, params_.plan.tile_rows);
    const sm80::TileRow first = rows.at(params_, 0);
    const int row = (rows.span.first_token + first.query) * params_.num_q_heads + first.head;
    const uint64_t policy = ptx::evict_first();
    ptx::arrive_and_expect(shared_.queries_full(), MlaTile::kQueryBytes);
#pragma unroll
    for (int chunk = 0; chunk < MlaTile::kValueChunks; chunk += kMlaQueryBoxChunks)
      ptx::copy_box(shared_.queries() + chunk * MlaTile::kChunkBytes, &mla_.q, 0, 0, row, chunk,
                    shared_.queries_full(), policy);
    ptx::copy_box(shared_.queries() + MlaTile::kValueChunks * MlaTile::kChunkBytes, &mla_.q_rope, 0, 0, row,
                  0, shared_.queries_full(), policy);
  }

  // Columns of q, then those of q_rope. Rows and columns beyond are zero. Eight lanes copy 128 bytes of a
  // row.
  __device__ void copy_queries(const MlaJob& job) const {
    constexpr int kRowsOfWarp = kMlaRows / MlaTile::kQueryWarps, kRowsAtOnce = 4;
    const sm80::JobRows rows(params_, job.tile, job.head, params_.plan.tile_rows);
    const char* const none = static_cast<const char*>(params_.q.data);
    const int num_nope = params_.head_dim_qk - params_.rope_dim, piece = lane_ % 8;
#pragma unroll 1
    for (int i = lane_ / 8; i < kRowsOfWarp; i += kRowsAtOnce) {
      const int tile_row = warp_ * kRowsOfWarp + i;
      const bool is_row = tile_row < rows.num_rows;
      const sm80::TileRow row = rows.at(params_, is_row ? tile_row : 0);
      const int64_t token = rows.span.first_token + row.query;
      const char* const nope = none + 2 * (token * params_.q.token_stride + row.head * params_.q.head_stride);
      const char* const rope =
          static_cast<const char*>(params_.q_rope.data) +
          2 * (token * params_.q_rope.token_stride + row.head * params_.q_rope.head_stride);
#pragma unroll
      for (int chunk = 0; chunk < MlaTile::kChunks; ++chunk) {
        const int column = chunk * kChunkColumns + piece * 8;
        const bool valid = is_row && column < params_.head_dim_qk;
        const char* const from = column < num_nope ? nope + 2 * column : rope + 2 * (column - num_nope);
        ptx::copy_async_16(shared_.queries() + chunk * MlaTile::kChunkBytes + swizzled(tile_row, piece),
                           valid ? from : none, valid);
      }
    }
  }

  const MlaParams& mla_;
  const AttentionParams& params_;
  const MlaShared& shared_;
  const int warp_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

}  // namespace attend::kernels::cuda::sm90
