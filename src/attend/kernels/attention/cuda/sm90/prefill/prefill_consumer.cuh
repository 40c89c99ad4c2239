// The warpgroups of prefill.cuh that multiply: which products are under way when, who waits for what.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_epilogue.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_f16_queries.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_splits.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/attention/cuda/sm90/verify_merge.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/packed_pipeline_state.h"

namespace attend::kernels::cuda::sm90 {

// Consumer: one warpgroup, all work tiles.
template <class T, class Tile>
class PrefillConsumer {
  using Shared = PrefillShared<Tile>;
  // Products with K/V of fp8 are those of f16.
  using Rows = PrefillRows<std::conditional_t<Tile::kConverts, __half, T>, Tile>;
  // Then queries of bf16 become f16, each row scaled by a power of two. Scores get that scale back, and their
  // descale, under a logit cap before it, else in the softmax.
  static constexpr bool kScalesRows = Tile::kConverts && std::is_same_v<T, __nv_bfloat16>,
                        kScalesScores = kScalesRows || Tile::kStagesDescales,
                        kScalesInSoftmax = kScalesScores && !Tile::kMayCap;
  using Splits = std::conditional_t<Tile::kFixedSplits, PrefillSplits<Rows>, NoPrefillSplits>;
  // Named barriers: two that order the warpgroups' wgmma (ping-pong), then one of each warpgroup alone.
  static constexpr int kSchedulerBarrier = 1, kWarpgroupBarrier = kSchedulerBarrier + Tile::kConsumers;
  // The only warpgroup of those that verify.
  struct Team {
    __device__ static int thread() { return ptx::tid_x() % 128; }
    __device__ static void sync() { ptx::barrier_sync(kWarpgroupBarrier, 128); }
  };

 public:
  // `warpgroup`: of the consumers.
  __device__ PrefillConsumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : prefill_(params), params_(params.attention), shared_(shared), warpgroup_(warpgroup) {}

  // The last P V of a work tile and the first QK^T of the next are under way together, and results of the one
  // are written beside the other (kBeginsEarly). Without a work tile before or behind, what is multiplied is
  // anything, and nobody reads it: ptxas wants wgmma that nothing branches around.
  __device__ __forceinline__ void run() {
    if (warpgroup_ == Tile::kConsumers - 1) scheduler_barrier_arrive();
    Rows rows;
    if constexpr (Tile::kBeginsEarly) rows.clear_p();
    int pending_tiles = 0;  // of the work tile whose last P V is to come
    for (;; work_tiles_.advance()) {
      if constexpr (Tile::kBeginsEarly) {
        if (pending_tiles > 0) wait_for_values();
        ptx::wgmma_fence();
        rows.multiply_values(shared_.values(values().stage()), pending_tiles > 1);
      }
      ptx::mbarrier_wait(shared_.work_tile_full(work_tiles_.stage()), work_tiles_.parity());
      const PrefillWorkTile& work_tile = shared_.work_tile(work_tiles_.stage());
      // What is known of the work tile is read where it is wanted: registers and predicates are few where
      // results are written.
      if (!is_end(work_tile)) {
        ptx::mbarrier_wait(shared_.queries_full(queries().stage(), warpgroup_), queries().parity());
        if constexpr (kScalesRows) {
          if (has_rows(work_tile)) convert_queries(queries().stage());
        } else if (prefill_.box_tokens == 0) {
          ptx::fence_proxy_async();
        }
        if constexpr (kScalesScores && !kScalesRows) score_scales_[0] = scale_of_scores(queries().stage());
      }
      if (tiles_of(work_tile) > 0) wait_for_keys();

      const uint32_t q = queries_of(queries().stage());
      VisibleScores visible;
      if constexpr (Tile::kBeginsEarly) {
        rows.multiply_keys(q, shared_.keys(keys_.stage()));
        if (kKnowsEnds && tiles_of(work_tile) > 0) visible = visible_scores_of_first(work_tile);
        ptx::wgmma_wait_group<1>();
        ptx::fence_operand(rows.out);
        if (pending_tiles > 0) {
          release_values(1);
          finish(rows, shared_.work_tile(work_tiles_.stage() ^ 1), queries().stage() ^ 1);
          release(shared_.work_tile_empty(work_tiles_.stage() ^ 1));
        }
        ptx::wgmma_wait_group<0>();
        pending_tiles = tiles_of(work_tile);
      }
      if (is_end(work_tile)) break;
      if (tiles_of(work_tile) > 0) {
        Splits splits(shared_.splits(warpgroup_), work_tile.first_key, params_.plan.kv_tile_keys);
        if constexpr (!Tile::kBeginsEarly) {
          rows.hold_queries(q);
          ptx::wgmma_fence();
          rows.multiply_keys(q, shared_.keys(keys_.stage()));
          if (kKnowsEnds) visible = visible_scores_of_first(work_tile);
          ptx::wgmma_wait_group<0>();
        }
        add_tiles(rows, splits, work_tile, q, visible);
        if constexpr (!Tile::kBeginsEarly) {
          wait_for_values();
          ptx::wgmma_fence();
          rows.multiply_values(shared_.values(values().stage()),
                               Tile::kFixedSplits || tiles_of(work_tile) > 1);
          ptx::wgmma_wait_group<0>();
          ptx::fence_operand(rows.out);
          release_values(1);
          if constexpr (Tile::kFixedSplits) {
            rows.finish_sums();
            splits.finish(rows, prefill_.softmax_scale_log2);
          }
          finish(rows, work_tile, queries().stage());
        }
      } else {
        if (has_rows(work_tile)) {
          release_queries(work_tile);
          rows.clear();
          finish(rows, work_tile, queries().stage());
        } else {
          pass(work_tile);
        }
      }
      if (!Tile::kBeginsEarly || pending_tiles == 0) release(shared_.work_tile_empty(work_tiles_.stage()));
    }
  }

 private:
  __device__ __forceinline__ static bool is_end(const PrefillWorkTile& work_tile) {
    return ptx::warp_uniform(work_tile.num_tiles) < 0;
  }
  // What the warpgroup has to compute.
  __device__ __forceinline__ int tiles_of(const PrefillWorkTile& work_tile) const {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    return has_rows(work_tile) ? max(num_tiles, 0) : 0;
  }
  __device__ __forceinline__ bool has_rows(const PrefillWorkTile& work_tile) const {
    return ptx::warp_uniform(work_tile.num_rows) > warpgroup_ * Tile::kConsumerRows;
  }
  // Of the present work tile.
  __device__ __forceinline__ PackedPipelineState<Tile::kQueryStages> queries() const {
    return work_tiles_.template with_stages<Tile::kQueryStages>();
  }
  // The consumer's, of a stage.
  __device__ __forceinline__ uint32_t queries_of(int stage) const {
    return shared_.queries(stage) + warpgroup_ * Tile::kConsumerRows * kPanelRowBytes;
  }

  // The other consumer has rows, this one none: turns pass, and stages are free.
  __device__ __forceinline__ void pass(const PrefillWorkTile& work_tile) {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
#pragma unroll 1
    for (int i = 0; i < num_tiles; ++i) {
      if (i > 0) {
        scheduler_barrier_sync();
        scheduler_barrier_arrive();
      }
      wait_for_keys();
      release_keys();
      wait_for_values();
      release_values(1);
    }
    release_queries(work_tile);
  }

  // From the scores of the first KV tile, of which rows see those `visible`, to P of the last one.
  __device__ __forceinline__ void add_tiles(Rows& rows, Splits& splits, const PrefillWorkTile& work_tile,
                                            uint32_t q, const VisibleScores& visible) {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    if constexpr (Tile::kFixedSplits) rows.clear();
    // What the compiler takes for different from lane to lane costs an instruction for each product: their
    // descriptors are in uniform registers.
    const KeyRange full{ptx::warp_uniform(work_tile.full.begin), ptx::warp_uniform(work_tile.full.end)};
    int first_key = ptx::warp_uniform(work_tile.first_key);
    ptx::fence_operand(rows.scores);
    release_keys();
    if (caps()) cap(rows);
    if (!is_full(full, first_key))
      rows.mask_scores(kKnowsEnds ? visible : visible_scores(work_tile, first_key));
    rows.begin(softmax_scales());
    rows.pack_p();
    wait_for_keys_or_end(num_tiles > 1, work_tile);
    // Most tiles are plain. Their code stands by itself: behind a jump over that of others, instructions
    // come late.
    const auto is_plain = [&] { return !caps() && is_full(full, first_key + Tile::kKeys); };
    for (int i = 1; i < num_tiles;) {
#pragma unroll 1
      for (; i < num_tiles && is_plain(); ++i)
        add_tile<true>(rows, splits, work_tile, q, first_key += Tile::kKeys, i, num_tiles);
#pragma unroll 1
      for (; i < num_tiles && !is_plain(); ++i)
        add_tile<false>(rows, splits, work_tile, q, first_key += Tile::kKeys, i, num_tiles);
    }
    if (Tile::kQueryStages > 1) release_queries(work_tile);
    if constexpr (kScalesInSoftmax && kScalesRows) unscale_row_max(rows);
  }

  // Merges what is this CTA's to merge of a work tile whose keys lie in several: where CTAs have no other
  // they share its rows, otherwise the last has all.
  __device__ __forceinline__ void merge(const PrefillWorkTile& work_tile) const {
    const PlanLine line = line_of<Tile>(params_);
    const WorkTileRows rows = rows_of(work_tile);
    const PartialResults partials =
        partials_of<false>(params_.plan, work_tile.tile, work_tile.head, line);
    int32_t* const state =
        params_.plan.partials_done + work_tile.tile.index * params_.num_kv_heads + work_tile.head;
    Meeting meeting(state, partials.count, rows.num_rows, params_.plan.meeting_clocks);
    RowShare share{0, rows.num_rows};
    if (line.exclusive)
      share = meet<Team>(meeting);
    else if (!complete_partials<Team>(state, 1, partials.count))
      share = {0, 0};
    VerifyMerge<Team>(params_, partials).merge(share, [&](int tile_row) {
      const TileRow row = rows.at(params_, tile_row);
      return OutputRow{rows.span.first_token + row.query, row.head};
    });
    Team::sync();
    if (line.exclusive && Team::thread() == 0) meeting.end();
  }

  // Results. `stage`: of the queries, whose place results have where TMA stores them.
  __device__ __forceinline__ void finish(Rows& rows, const PrefillWorkTile& work_tile, int stage) {
    float scale = Rows::Precision::kUnscale;
    if constexpr (Tile::kStagesDescales) {
      const HeadDescales descales = shared_.descales(stage);
      scale *= descales.out;
      // Whoever merges knows no descales.
      if constexpr (kScalesInSoftmax)
        for (float& most : rows.row_max) most *= descales.scores;
    }
    if constexpr (!Tile::kFixedSplits) rows.finish_sums();
    // Else the compiler takes the warps of a warpgroup for diverged and serialises every wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);

    const PrefillEpilogue<T, Rows, Tile> epilogue(params_, rows_of(work_tile), warpgroup_, scale);
    if (stages_results(work_tile)) {
      epilogue.stage(rows, prefill_.softmax_scale_log2, queries_of(stage));
      ptx::fence_proxy_async();
      release(shared_.queries_empty(stage, warpgroup_));
      epilogue.write_lse(rows, prefill_.softmax_scale_log2);
    } else {
      epilogue.write(rows, prefill_.softmax_scale_log2, work_tile.partial_idx);
      if constexpr (Tile::kVerifies)
        if (work_tile.partial_idx >= 0) merge(work_tile);
    }
  }
  // Whether results of all of the warpgroup's rows go to memory by TMA.
  __device__ __forceinline__ bool stages_results(const PrefillWorkTile& work_tile) const {
    return Tile::kStagesResults &&
           ptx::warp_uniform(work_tile.num_staged_rows) >= (warpgroup_ + 1) * Tile::kConsumerRows;
  }

  // QK^T of the KV tile from `first_key` on, P V of the one before. `more`: there is another one.
  template <bool kPlain>
  __device__ __forceinline__ void add_tile(Rows& rows, [[maybe_unused]] Splits& splits,
                                           const PrefillWorkTile& work_tile, uint32_t q, int first_key, int i,
                                           int num_tiles) {
    const bool more = i + 1 < num_tiles;
    [[maybe_unused]] VisibleScores visible;
    if constexpr (!kPlain && !kKnowsEnds) visible = visible_scores(work_tile, first_key);
    scheduler_barrier_sync();
    ptx::wgmma_fence();
    rows.multiply_keys(q, shared_.keys(keys_.stage()));
    wait_for_values();
    rows.multiply_values(shared_.values(values().stage()), Tile::kFixedSplits || i > 1);
    scheduler_barrier_arrive();
    if constexpr (!kPlain && kKnowsEnds) visible = visible_scores(work_tile, first_key);
    ptx::wgmma_wait_group<1>();
    ptx::fence_operand(rows.scores);
    const auto edit = [&] {
      if constexpr (!kPlain) {
        if (caps()) cap(rows);
        rows.mask_scores(visible);
      }
    };
    edit();
    if constexpr (Tile::kOneStepSoftmax)
      make_p_by_old_max(rows, work_tile, q, more, edit);
    else
      make_p(rows, splits, work_tile, first_key, more);
  }

  // Scores become P in one step, to the end of the P V before. `edit`: caps and masks scores.
  template <class Edit>
  __device__ __forceinline__ void make_p_by_old_max(Rows& rows, const PrefillWorkTile& work_tile, uint32_t q,
                                                    bool more, const Edit& edit) {
    rows.exponentiate_by_old_max(
        softmax_scales(),
        [&] {
          rows.multiply_keys_by_warp(q, shared_.keys(keys_.stage()));
          edit();
        },
        [&] {
          ptx::wgmma_wait_group<0>();
          ptx::fence_operand(rows.out);
        });
    release_keys();
    wait_for_keys_or_end(more, work_tile);
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values(2);
    rows.pack_p();
  }

  // The same where the row max comes first.
  __device__ __forceinline__ void make_p(Rows& rows, [[maybe_unused]] Splits& splits,
                                         const PrefillWorkTile& work_tile, int first_key, bool more) {
    release_keys();
    [[maybe_unused]] bool begins_split = false;
    if constexpr (Tile::kFixedSplits)
      begins_split = splits.ends_before(first_key, params_.plan.kv_tile_keys, rows);
    rows.raise_max(prefill_.softmax_scale_log2);
    if constexpr (Tile::kExponentiatesBesidePv) {
      rows.exponentiate(softmax_scales());

      // The spin loop in this keeps the compiler from moving the next wait before the softmax.
      wait_for_keys_or_end(more, work_tile);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values(2);
    if constexpr (Tile::kFixedSplits)
      if (begins_split) splits.add_ended(rows, prefill_.softmax_scale_log2);
    if constexpr (!Tile::kExponentiatesBesidePv) {
      rows.exponentiate(softmax_scales());
      wait_for_keys_or_end(more, work_tile);
    }
    rows.rescale_and_pack_p();
  }

  // Of a KV tile: every row sees all of it.
  __device__ __forceinline__ static bool is_full(const KeyRange& full, int first_key) {
    return first_key >= full.begin && first_key + Tile::kKeys <= full.end;
  }
  // Of the first KV tile, before the others.
  __device__ __forceinline__ VisibleScores visible_scores_of_first(const PrefillWorkTile& work_tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      ends_[half] = Rows::end_of_row(params_, rows_of(work_tile), prefill_row<Tile>(warpgroup_) + 8 * half,
                                     {work_tile.tile.kv_begin, work_tile.tile.kv_end});
    return visible_scores(work_tile, work_tile.first_key);
  }
  __device__ __forceinline__ VisibleScores visible_scores(const PrefillWorkTile& work_tile,
                                                          int first_key) const {
    if constexpr (kKnowsEnds)
      if (!Rows::has_windows(params_.batch))
        return Rows::visible_scores(ends_, first_key, work_tile.tile.kv_begin);
    return Rows::visible_scores(params_, rows_of(work_tile), prefill_row<Tile>(warpgroup_), first_key,
                                {work_tile.tile.kv_begin, work_tile.tile.kv_end});
  }
  __device__ __forceinline__ bool caps() const { return Tile::kMayCap && params_.logit_cap > 0.0f; }
  __device__ __forceinline__ void cap(Rows& rows) const {
    ScoreCap cap(params_);
    if constexpr (kScalesScores && !kScalesRows) cap.to_exponent *= score_scales_[0];
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; ++i) {
      if constexpr (kScalesRows) rows.scores[i] *= score_scales_[i / 2 % 2];
      rows.scores[i] = cap(rows.scores[i]);
    }
  }

  // What scores of a stage's queries are multiplied by in the softmax, or before their cap.
  __device__ __forceinline__ float scale_of_scores(int stage) const {
    const float scale = kScalesInSoftmax ? prefill_.softmax_scale_log2 : 1.0f;
    if constexpr (Tile::kStagesDescales) return scale * shared_.descales(stage).scores;
    return scale;
  }
  // Of the work tile.
  __device__ __forceinline__ void convert_queries(int stage) {
    const float scale = scale_of_scores(stage);
    const RowScales from_f16 = queries_to_f16<Tile>(queries_of(stage));
#pragma unroll
    for (int half = 0; half < 2; ++half) score_scales_[half] = from_f16[half] * scale;
    if constexpr (Tile::kStagesDescales)
      query_scales_ = __byte_perm(__float_as_uint(from_f16[0]), __float_as_uint(from_f16[1]), 0x7632);
    ptx::fence_proxy_async();
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
  }
  __device__ __forceinline__ auto softmax_scales() const {
    if constexpr (kScalesInSoftmax && kScalesRows)
      return RowScales{score_scales_[0], score_scales_[1]};
    else if constexpr (kScalesInSoftmax)
      return SameScale{score_scales_[0]};
    else
      return SameScale{prefill_.softmax_scale_log2};
  }
  // Of scores as they would be without the scales of queries.
  __device__ __forceinline__ void unscale_row_max(Rows& rows) const {
    if constexpr (Tile::kStagesDescales) {
      rows.row_max[0] *= __uint_as_float(query_scales_ << 16);
      rows.row_max[1] *= __uint_as_float(query_scales_ & 0xffff0000u);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        rows.row_max[half] *= power_of_two_between(prefill_.softmax_scale_log2, score_scales_[half]);
    }
  }

  // Computed again where it is wanted, since registers are short.
  __device__ __forceinline__ WorkTileRows rows_of(const PrefillWorkTile& work_tile) const {
    return {params_, work_tile.tile, work_tile.head, most_rows<Tile>(params_)};
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage()), keys_.parity());
    if (Tile::kMayLoadRows && (Tile::kByRows || prefill_.box_rows == 0)) ptx::fence_proxy_async();
  }
  // Waits for the next K. Without any the queries are free: where the next ones have no place of their own,
  // they are wanted at once.
  __device__ __forceinline__ void wait_for_keys_or_end(bool more, const PrefillWorkTile& work_tile) {
    if (more)
      wait_for_keys();
    else if (Tile::kQueryStages == 1)
      release_queries(work_tile);
  }
  __device__ __forceinline__ void release_keys() {
    release(shared_.keys_empty(keys_.stage()));
    keys_.advance();
  }
  // Of the KV tile before the one whose keys are next.
  __device__ __forceinline__ auto values() const { return values_before(1); }
  __device__ __forceinline__ auto values_before(uint32_t num_tiles) const {
    return keys_.before(num_tiles).template with_stages<Tile::kStages>();
  }
  __device__ __forceinline__ void wait_for_values() const {
    ptx::mbarrier_wait(shared_.values_full(values().stage()), values().parity());
    // Asked in another way than of keys: one answer for both would take a predicate, which masks have none
    // to spare of.
    if (Tile::kMayLoadRows && (Tile::kByRows || prefill_.box_rows < 1)) ptx::fence_proxy_async();
  }
  // `tiles_before` the one whose keys are next.
  __device__ __forceinline__ void release_values(uint32_t tiles_before) {
    release(shared_.values_empty(values_before(tiles_before).stage()));
  }
  // Where results will take their place, that is for finish() to do.
  __device__ __forceinline__ void release_queries(const PrefillWorkTile& work_tile) {
    if (!stages_results(work_tile)) release(shared_.queries_empty(queries().stage(), warpgroup_));
  }
  // One arrival a warp.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  // Without turns, the warpgroup's own: some barrier keeps the compiler from taking its warps for diverged.
  __device__ __forceinline__ void scheduler_barrier_sync() const {
    if constexpr (!Tile::kTakesTurns) return ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    ptx::barrier_sync(kSchedulerBarrier + warpgroup_, 128 * Tile::kConsumers);
  }
  __device__ __forceinline__ void scheduler_barrier_arrive() const {
    if constexpr (!Tile::kTakesTurns) return;
    ptx::barrier_arrive(kSchedulerBarrier + (warpgroup_ ^ 1), 128 * Tile::kConsumers);
  }

  const PrefillParams& prefill_;
  const AttentionParams& params_;
  const Shared& shared_;
  const int warpgroup_;
  PackedPipelineState<Tile::kWorkTileStages> work_tiles_;
  // Where what the thread's rows see of the work tile's keys ends. Three warpgroups, and two beside those
  // that convert fp8, have no registers for it.
  static constexpr bool kKnowsEnds =
      Tile::kConsumers == 2 && Tile::kWarpsOfOperand == 1 && !Tile::kHasRowWarpgroup;
  int ends_[2];
  // What scores of the thread's rows are multiplied by; one number where queries were not scaled.
  float score_scales_[2];
  // The part of those for scaled queries, beside descales: powers of two, which have no lower halves.
  uint32_t query_scales_;
  // Counted until both are in their first stages again.
  static constexpr uint32_t kRounds =
      Tile::kKeyStages == Tile::kStages ? rounds_of(Tile::kStages) : 2 * Tile::kKeyStages * Tile::kStages;
  PackedPipelineState<Tile::kKeyStages, kRounds> keys_;
};

}  // namespace attend::kernels::cuda::sm90
