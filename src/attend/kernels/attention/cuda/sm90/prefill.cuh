// Attention of many rows on sm_90a, with TMA and wgmma: query rows of one request and KV head (GQA heads
// packed with query tokens) against KV tiles. Warp-specialised and persistent: two consumer warpgroups take
// turns at the tensor cores, so that the softmax of one runs beside the wgmma of the other (ping-pong), and
// each issues QK^T of its next KV tile before the softmax of the present one has ended, and that of its next
// work tile before results of the present one. Up to head dim 96 there are three, who take no turns. fp8 K/V
// are converted to the 16-bit type of q on their way.
//
// Verify (17 to 64 rows, head dims of V up to 128): one consumer, two CTAs of an SM, which divide the keys
// and merge what they have of a work tile as sm80's kernel does. Bound by reading K/V, as decode is.
//
// Fixed splits (head dims 128/128): bit for bit what sm80's kernel computes. Its KV tiles of 64 keys, its
// order of row sums, and at the end of a split it is merged into those before it, which lie in shared memory.
// Queries are in registers then.
//
//   tile        128 rows x 128 keys (64 at head dim 256 and under fixed splits); 192 rows x 96 keys at head
//               dims 64 and 96 (fp8: as the others); verify: 64 rows x 32 keys. Head dims 64/64, 96/96,
//               128/128, 192/128, 256/256
//   warps       2 or 3 consumer warpgroups of 64 rows each: QK^T and PV by wgmma m64n(keys)k16 and
//               m64n(head_dim_v)k16, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               where pages have 8 rows or more, else by cp.async, and two for the consumers' queries, one of
//               which schedules. fp8: two producer warpgroups, two warps each for K and V
//   registers   216 a consumer thread, 72 a producer thread (setmaxnreg); at head dim 256 and under
//               fixed splits 224 and 56; three consumers: 152 and 56; fp8: 200 and 56; verify: 184 and 72.
//               Launched with 168 (three consumers, fp8, verify: 128)
//   shared      96 KB at head dims 64, 192 KB at 96 and 128, 208 KB at 192/128, 192 KB at 256; fp8: 112
//               and 224 KB; fixed splits 224 KB; verify 24, 48, 48, 64 KB. Two work tiles with their queries
//               (one above 128, for fp8 and verify), two stages of K and two of V (three under fixed splits),
//               two of fp8 bytes, the splits that have ended
//   bytes       of a KV tile: 24 KB at head dims 64, 36 KB at 96, 64 KB at 128, 80 KB at 192/128, 64 KB at
//               256; fp8: 16 and 32 KB
//   bound       tensor cores, and the softmax's exponentials
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_epilogue.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_fp8_producer.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_splits.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_tile.cuh"
#include "attend/kernels/attention/cuda/sm90/verify_merge.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Consumer: one warpgroup, all work tiles.
template <class T, class Tile>
class PrefillConsumer {
  using Shared = PrefillShared<Tile>;
  using Rows = PrefillRows<T, Tile>;
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
      : prefill_(params),
        params_(params.attention),
        shared_(shared),
        warpgroup_(warpgroup),
        cp_async_rows_(params.box_rows == 0 && Tile::kWarpsOfOperand == 1),
        cp_async_queries_(params.box_tokens == 0),
        softmax_scale_log2_(sm80::softmax_scale_log2_of(params.attention)) {}

  // The last P V of a work tile and the first QK^T of the next are under way together, and results of the one
  // are written beside the other (kBeginsEarly). Without a work tile before or behind, what is multiplied is
  // anything, and nobody reads it: ptxas wants wgmma that nothing branches around.
  __device__ void run() {
    if (warpgroup_ == Tile::kConsumers - 1) scheduler_barrier_arrive();
    Rows rows;
    if constexpr (Tile::kBeginsEarly) rows.clear_p();
    bool is_pending = false, adds = false;  // the last P V; to others of its work tile
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      if constexpr (Tile::kBeginsEarly) {
        if (is_pending) wait_for_values();
        ptx::wgmma_fence();
        rows.multiply_values(shared_.values(values_.stage), adds);
      }
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
      bool has_rows = false;
      if (num_tiles >= 0) {
        ptx::mbarrier_wait(shared_.queries_full(queries_.stage, warpgroup_), queries_.parity);
        if (cp_async_queries_) ptx::fence_proxy_async();
        has_rows = ptx::warp_uniform(rows_of(work_tile).num_rows) > warpgroup_ * Tile::kConsumerRows;
      }
      const bool has_tiles = has_rows && num_tiles > 0;
      if (has_tiles) wait_for_keys();

      const uint32_t q = queries(queries_.stage);
      if constexpr (Tile::kBeginsEarly) {
        rows.multiply_keys(q, shared_.keys(keys_.stage));
        ptx::wgmma_wait_group<1>();
        ptx::fence_operand(rows.out);
        if (is_pending) {
          release_values();
          finish(rows, shared_.work_tile(state.stage ^ 1), queries(queries_.stage ^ 1));
          release(shared_.work_tile_empty(state.stage ^ 1));
        }
        ptx::wgmma_wait_group<0>();
        is_pending = has_tiles;
      }
      if (num_tiles < 0) break;
      if (has_tiles) {
        Splits splits(shared_.splits(warpgroup_), work_tile.first_key, params_.plan.kv_tile_keys);
        if constexpr (!Tile::kBeginsEarly) {
          rows.hold_queries(q);
          ptx::wgmma_fence();
          rows.multiply_keys(q, shared_.keys(keys_.stage));
          ptx::wgmma_wait_group<0>();
        }
        release_results();
        adds = add_tiles(rows, splits, work_tile, q, num_tiles);
        if constexpr (!Tile::kBeginsEarly) {
          wait_for_values();
          ptx::wgmma_fence();
          rows.multiply_values(shared_.values(values_.stage), adds);
          ptx::wgmma_wait_group<0>();
          ptx::fence_operand(rows.out);
          release_values();
          if constexpr (Tile::kFixedSplits) {
            rows.finish_sums();
            splits.finish(rows, softmax_scale_log2_);
          }
          finish(rows, work_tile, q);
        }
      } else {
        if (has_rows) {
          release_results();
          release_queries(work_tile);
          rows.clear();
          finish(rows, work_tile, q);
        } else {
          pass(work_tile);
        }
      }
      if (!Tile::kBeginsEarly || !has_tiles) release(shared_.work_tile_empty(state.stage));
    }
    if (is_leader()) ptx::cp_async_bulk_wait_until_read();
  }

 private:
  // The consumer's, of a stage.
  __device__ __forceinline__ uint32_t queries(int stage) const {
    return shared_.queries(stage) + warpgroup_ * Tile::kConsumerRows * kPanelRowBytes;
  }

  // The other consumer has rows, this one none: turns pass, and stages are free.
  __device__ __forceinline__ void pass(const PrefillWorkTile& work_tile) {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    release_results();
#pragma unroll 1
    for (int i = 0; i < num_tiles; ++i) {
      if (i > 0) {
        scheduler_barrier_sync();
        scheduler_barrier_arrive();
      }
      wait_for_keys();
      release(shared_.keys_empty(keys_.stage));
      keys_.advance(Tile::kStages);
      wait_for_values();
      release_values();
    }
    release_queries(work_tile);
  }

  // From the scores of the first KV tile to P of the last one. Whether the P V of that is to be added to
  // others.
  __device__ __forceinline__ bool add_tiles(Rows& rows, Splits& splits, const PrefillWorkTile& work_tile,
                                            uint32_t q, int num_tiles) {
    // What the compiler takes for different from lane to lane costs an instruction for each product: their
    // descriptors are in uniform registers.
    const KeyRange full{ptx::warp_uniform(work_tile.full.begin), ptx::warp_uniform(work_tile.full.end)};
    int first_key = ptx::warp_uniform(work_tile.first_key);
    if constexpr (Tile::kFixedSplits)
      rows.clear();
    else
      rows.clear_state();
    score<false>(rows, work_tile, first_key);
    rows.exponentiate(softmax_scale_log2_);
    rows.pack_p();
    wait_for_keys_or_end(num_tiles > 1, work_tile);
    // Most tiles are plain. Their code stands by itself: behind a jump over that of others, instructions
    // come late.
    for (int i = 1; i < num_tiles;) {
#pragma unroll 1
      for (; i < num_tiles && is_plain(full, first_key + Tile::kKeys); ++i)
        add_tile<true>(rows, splits, work_tile, q, first_key += Tile::kKeys, i, num_tiles);
#pragma unroll 1
      for (; i < num_tiles && !is_plain(full, first_key + Tile::kKeys); ++i)
        add_tile<false>(rows, splits, work_tile, q, first_key += Tile::kKeys, i, num_tiles);
    }
    return Tile::kFixedSplits || num_tiles > 1;
  }

  // Merges what is this CTA's to merge of a work tile whose keys lie in several: where CTAs have no other
  // they share its rows, otherwise the last has all.
  __device__ __forceinline__ void merge(const PrefillWorkTile& work_tile) const {
    const PlanLine line = line_of<Tile>(params_);
    const sm80::WorkTileRows rows = rows_of(work_tile);
    const sm80::PartialResults partials =
        sm80::partials_of<false>(params_.plan, work_tile.tile, work_tile.head, line);
    int32_t* const state =
        params_.plan.partials_done + work_tile.tile.index * params_.num_kv_heads + work_tile.head;
    sm80::Meeting meeting(state, partials.count, rows.num_rows, params_.plan.meeting_clocks);
    sm80::RowShare share{0, rows.num_rows};
    if (line.exclusive)
      share = sm80::meet<Team>(meeting);
    else if (!sm80::complete_partials<Team>(state, 1, partials.count))
      share = {0, 0};
    VerifyMerge<Team>(params_, partials).merge(share, [&](int tile_row) {
      const sm80::TileRow row = rows.at(params_, tile_row);
      return sm80::OutputRow{rows.span.first_token + row.query, row.head};
    });
    Team::sync();
    if (line.exclusive && Team::thread() == 0) meeting.end();
  }

  // Results: `q` is where they may be staged.
  __device__ __forceinline__ void finish(Rows& rows, const PrefillWorkTile& work_tile, uint32_t q) {
    if constexpr (!Tile::kFixedSplits) rows.finish_sums();
    // Else the compiler takes the warps of a warpgroup for diverged and serialises every wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);

    const PrefillEpilogue<T, Tile> epilogue(params_, rows_of(work_tile), warpgroup_);
    if (holds_results_) {
      epilogue.stage(rows, softmax_scale_log2_, q);
      ptx::fence_proxy_async();
      ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
      if (is_leader()) store_results(work_tile, q);
    } else {
      epilogue.write(rows, softmax_scale_log2_, work_tile.partial_idx);
      if constexpr (Tile::kVerifies)
        if (work_tile.partial_idx >= 0) merge(work_tile);
    }
  }

  // Whether the warpgroup's results go to memory by TMA: they are final, and a whole box.
  __device__ __forceinline__ bool can_stage_results(const PrefillWorkTile& work_tile) const {
    return Tile::kStagesResults && prefill_.stores_boxes && work_tile.partial_idx < 0 &&
           rows_of(work_tile).num_rows >= (warpgroup_ + 1) * Tile::kConsumerRows;
  }
  // By the leader. `from`: the warpgroup's queries, whose place results have.
  __device__ __forceinline__ void store_results(const PrefillWorkTile& work_tile, uint32_t from) const {
    const int token =
        work_tile.tile.first_token + work_tile.tile.first_query + warpgroup_ * prefill_.box_tokens;
#pragma unroll
    for (int panel = 0; panel < Tile::kVPanels; ++panel)
      ptx::cp_async_bulk_tensor_store(&prefill_.out, panel * kPanelColumns, work_tile.head * params_.group,
                                      token, from + panel * Tile::kQueryPanelBytes);
    ptx::cp_async_bulk_commit_group();
  }
  // The place of the work tile's results before this one is free, as soon as they have been read from it.
  __device__ __forceinline__ void release_results() {
    if constexpr (Tile::kStagesResults) {
      if (holds_results_ && is_leader()) {
        ptx::cp_async_bulk_wait_until_read();
        ptx::mbarrier_arrive(shared_.queries_empty(queries_.stage ^ 1, warpgroup_),
                             Tile::kConsumerWarps / Tile::kConsumers);
      }
      holds_results_ = false;
    }
  }
  __device__ __forceinline__ static bool is_leader() { return threadIdx.x % 128 == 0; }

  // QK^T of the KV tile from `first_key` on, P V of the one before. `more`: there is another one.
  template <bool kPlain>
  __device__ __forceinline__ void add_tile(Rows& rows, [[maybe_unused]] Splits& splits,
                                           const PrefillWorkTile& work_tile, uint32_t q, int first_key, int i,
                                           int num_tiles) {
    const bool more = i + 1 < num_tiles;
    scheduler_barrier_sync();
    ptx::wgmma_fence();
    rows.multiply_keys(q, shared_.keys(keys_.stage));
    wait_for_values();
    rows.multiply_values(shared_.values(values_.stage), Tile::kFixedSplits || i > 1);
    scheduler_barrier_arrive();
    ptx::wgmma_wait_group<1>();
    if constexpr (Tile::kOneStepSoftmax) {
      ptx::fence_operand(rows.scores);
      const auto edit = [&] {
        if constexpr (!kPlain) cap_and_mask(rows, work_tile, first_key);
      };
      edit();
      rows.exponentiate_by_old_max(
          softmax_scale_log2_,
          [&] {
            rows.multiply_keys_by_warp(q, shared_.keys(keys_.stage));
            edit();
          },
          [&] {
            ptx::wgmma_wait_group<0>();
            ptx::fence_operand(rows.out);
          });

      release(shared_.keys_empty(keys_.stage));
      keys_.advance(Tile::kStages);
      wait_for_keys_or_end(more, work_tile);
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(rows.out);
      release_values();
      rows.pack_p();
      return;
    }
    [[maybe_unused]] bool begins_split = false;
    if constexpr (Tile::kFixedSplits)
      begins_split = splits.ends_before(first_key, params_.plan.kv_tile_keys, rows);
    score<kPlain>(rows, work_tile, first_key);
    if constexpr (Tile::kExponentiatesBesidePv) {
      rows.exponentiate(softmax_scale_log2_);

      // The spin loop in this keeps the compiler from moving the next wait before the softmax.
      wait_for_keys_or_end(more, work_tile);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values();
    if constexpr (Tile::kFixedSplits)
      if (begins_split) splits.add_ended(rows, softmax_scale_log2_);
    if constexpr (!Tile::kExponentiatesBesidePv) {
      rows.exponentiate(softmax_scale_log2_);
      wait_for_keys_or_end(more, work_tile);
    }
    rows.rescale_and_pack_p();
  }

  // Of a KV tile: without cap and mask.
  __device__ __forceinline__ bool is_plain(const KeyRange& full, int first_key) const {
    return params_.logit_cap <= 0.0f && first_key >= full.begin && first_key + Tile::kKeys <= full.end;
  }

  // The stage of K is free; cap, mask and row max.
  template <bool kPlain>
  __device__ __forceinline__ void score(Rows& rows, const PrefillWorkTile& work_tile, int first_key) {
    ptx::fence_operand(rows.scores);
    release(shared_.keys_empty(keys_.stage));
    keys_.advance(Tile::kStages);
    if constexpr (!kPlain) cap_and_mask(rows, work_tile, first_key);
    rows.raise_max(softmax_scale_log2_);
  }
  __device__ __forceinline__ void cap_and_mask(Rows& rows, const PrefillWorkTile& work_tile, int first_key) {
    if (params_.logit_cap > 0.0f) {
      const sm80::ScoreCap cap(params_);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (first_key < work_tile.full.begin || first_key + Tile::kKeys > work_tile.full.end)
      rows.mask_scores(params_, rows_of(work_tile), prefill_row<Tile>(warpgroup_), first_key,
                       {work_tile.tile.kv_begin, work_tile.tile.kv_end});
  }

  // Computed again where it is wanted, since registers are short.
  __device__ __forceinline__ sm80::WorkTileRows rows_of(const PrefillWorkTile& work_tile) const {
    return {params_, work_tile.tile, work_tile.head, most_rows<Tile>(params_)};
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage), keys_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  // Waits for the next K; without any, the queries are free.
  __device__ __forceinline__ void wait_for_keys_or_end(bool more, const PrefillWorkTile& work_tile) {
    if (more)
      wait_for_keys();
    else
      release_queries(work_tile);
  }
  __device__ __forceinline__ void wait_for_values() const {
    ptx::mbarrier_wait(shared_.values_full(values_.stage), values_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  __device__ __forceinline__ void release_values() {
    release(shared_.values_empty(values_.stage));
    values_.advance(Tile::kStages);
  }
  // Where results will take their place, that is for release_results() to do.
  __device__ __forceinline__ void release_queries(const PrefillWorkTile& work_tile) {
    holds_results_ = can_stage_results(work_tile);
    if (!holds_results_) release(shared_.queries_empty(queries_.stage, warpgroup_));
    queries_.advance(Tile::kQueryStages);
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
  const bool cp_async_rows_, cp_async_queries_;
  const float softmax_scale_log2_;
  PipelineState queries_, keys_, values_;
  bool holds_results_ = false;  // in the place of the queries before the present ones
};

// The producer of K, or of V.
template <class T, Element kKv, class Tile, bool kValues>
using PrefillProducerOf = std::conditional_t<is_fp8(kKv), PrefillFp8Producer<T, kKv, Tile, kValues>,
                                             PrefillProducer<Tile, PrefillShared<Tile>, kValues>>;

template <class T, Element kKv, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kCtasOfSm)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const PrefillShared<Tile> shared(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  if constexpr (Tile::kVerifies) {
    if (threadIdx.x == 32 && params.box_rows > 0) {
      ptx::prefetch_tensormap(&params.k);
      ptx::prefetch_tensormap(&params.v);
    }
    if (threadIdx.x == 32 && params.box_tokens > 0) ptx::prefetch_tensormap(&params.q);
  }
  ptx::griddepcontrol_wait();
  write_padding(params.attention, num_planned_tokens<Tile>(params.attention));
  __syncthreads();
  const int warp = ptx::warp_uniform(static_cast<int>(threadIdx.x) / 32);
  if (warp < Tile::kProducerWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp < Tile::kWarpsOfOperand)
      PrefillProducerOf<T, kKv, Tile, false>(params, shared, warp).run();
    else if (warp < Tile::kLoadWarps)
      PrefillProducerOf<T, kKv, Tile, true>(params, shared, warp - Tile::kWarpsOfOperand).run();
    else if (warp < Tile::kLoadWarps + Tile::kQueryWarps)
      PrefillScheduler<Tile, PrefillShared<Tile>>(params, shared, warp - Tile::kLoadWarps).run();
  } else {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile>(params, shared, warp / 4 - Tile::kProducerWarps / 4).run();
  }
}

template <class T, Element kKv, class Tile>
void launch_prefill_tile(const PrefillParams& params, int num_ctas, void* stream) {
  constexpr int kSharedBytes = PrefillShared<Tile>::kBytes;
  constexpr auto kKernel = prefill_kernel<T, kKv, Tile>;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                  kSharedBytes, stream, params, "attention");
}

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV>
void launch_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  const PlanView& plan = params.attention.plan;
  if constexpr (!is_fp8(kKv) && has_fixed_splits({kHeadDimQk, kHeadDimV}))
    if (plan.split_bank != nullptr)
      return launch_prefill_tile<T, kKv,
                                 PrefillTile<kHeadDimQk, kHeadDimV, false, PrefillKind::kFixedSplits>>(
          params, num_ctas, stream);
  if constexpr (may_verify(kHeadDimV, is_fp8(kKv)))
    if (verifies(plan))
      return launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, PrefillKind::kVerify>>(
          params, num_ctas, stream);
  launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, is_fp8(kKv)>>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
