// Prefill attention on sm_90a, with TMA and wgmma: query rows of one request and KV head (GQA heads packed
// with query tokens) against KV tiles. Warp-specialized and persistent. Two consumer warpgroups alternate on
// the tensor cores, so that the softmax of one overlaps with the wgmma of the other (ping-pong). Each issues
// QK^T of its next KV tile before the softmax of the current one has ended, and QK^T of its next work tile
// before it writes results of the current one. Up to head dim 96 there are three consumers, without
// ping-pong. fp8 K/V are converted to f16 in shared memory, and so are their bf16 queries
// (docs/kernels/prefill-fp8.md); descales per request and head have separate kernel instances.
//
// Verify (17 to 64 rows, head dims of V up to 128): one consumer per CTA. Two CTAs of an SM divide the keys
// and merge partial results of a work tile as sm80's kernel does. Bound by reading K/V, like decode.
//
// Pages of few rows (by rows): three of the producers' four warps copy row by row with cp.async. Without
// logit cap, fixed splits and verify this is a separate kernel with more stages and, with two consumers and
// head dims of V up to 128, a warpgroup that copies.
//
// Fixed splits (head dims 128/128): bit-identical to sm80's kernel. The KV tiles of 64 keys and the order of
// row sums are the same, and a split that ends is merged into the previous ones, which are in shared memory.
// Queries are then in registers.
//
// Pairs (head dim 512): the CTAs of a cluster of two have the same work tiles and each half of the columns of
// q, K, V and the output, with the tile of head dim 256. Consumer warps of the same rows exchange their parts
// of the scores with st.async, so that both CTAs have the same sums, row maxima and P.
//
//   tile        128 rows x 128 keys (64 at head dim 256 and with fixed splits); 192 rows x 96 keys at head
//               dims 64 and 96 (fp8: 128 x 128); verify: 64 rows x 32 keys. Head dims 64/64, 96/96, 128/128,
//               192/128, 256/256, 512/512 in pairs
//   warps       1 (verify) to 3 consumer warpgroups of 64 rows each: QK^T and PV by wgmma m64n(keys)k16 and
//               m64n(head_dim_v)k16, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               if pages have 16 rows or more (8 up to head dim 96 and for verify, fp8 4), else by rows; two
//               warps for queries and for results in the queries' memory, one of them the scheduler. fp8: a
//               warpgroup that converts, two warps K and two V
//   registers   224 per consumer thread, 56 per producer thread (setmaxnreg); three consumers: 152 and 56;
//               fp8: 208, 56 and 40 to convert; verify: 184 and 72; a warpgroup for rows: 200 and 56.
//               Launched with 168 (three consumers, fp8, verify, a warpgroup for rows: 128)
//   shared      96 KB at head dims 64, 192 KB at 96 and 128, 208 KB at 192/128, 192 KB at 256; fp8: 160
//               and 224 KB; fixed splits 224 KB; verify 24, 48, 48, 64 KB; by rows 120, 216, 224, 208 and
//               224 KB. Two work tiles with their queries (one above 128 and for verify), two stages of K and
//               two of V (three with fixed splits; by rows three of K except at 192/128, and three of V at
//               64), two stages of fp8 (at 128 two half tiles), and accumulators of the splits that have
//               ended. In pairs 224 KB, of which 32 are scores of the other CTA
//   bytes       per KV tile: 24 KB at head dims 64, 36 KB at 96, 64 KB at 128, 80 KB at 192/128, 64 KB at
//               256; fp8: 16 and 32 KB; verify: 8, 12, 16, 20 KB; in pairs 64 KB per CTA, and 32 KB of scores
//               in each direction
//   bound       tensor cores, and the exponentials of the softmax
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/complete_partials.cuh"
#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/split_kv_barrier.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_stages.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/packed_pipeline_state.h"

namespace attend::kernels::cuda::sm90 {

// Merge of partial results of a work tile that CTAs verify together (prefill.cuh). It has more rows than in
// decode, so several rows are merged at a time, which keeps more loads in flight.

// Called by the 128 threads of `Team`. Each warp merges every fourth row, kRows of its rows at a time, with
// kPartials partial results of each relative to their common row max; its rounding differs from that of other
// merges. Lanes share the columns.
template <class Team>
class VerifyMerge {
  static constexpr int kWarps = 4, kRows = 4, kPartials = 4, kColumnsPerLane = 4;
  static_assert(kRows * kPartials <= 32);

 public:
  // Head dims of V up to 128.
  __device__ VerifyMerge(const AttentionParams& params, const PartialResults& partials)
      : params_(params),
        partials_(partials),
        softmax_scale_log2_(get_softmax_scale_log2(params)),
        lane_(Team::thread() % 32) {}

  // `get_row(tile_row)` returns the row's OutputRow.
  template <class RowOf>
  __device__ void merge(const MergeRows& share, const RowOf& get_row) const {
#pragma unroll 1
    for (int first = share.begin + Team::thread() / 32; first < share.end; first += kWarps * kRows)
      merge_rows(first, share.end, get_row);
  }

 private:
  template <class RowOf>
  __device__ void merge_rows(int first, int end, const RowOf& get_row) const {
    const PlanView& plan = params_.plan;
    const auto tile_row = [&](int i) { return first + i * kWarps; };
    const auto row_at = [&](int i, int partial) {
      return int64_t{partials_.index(partial)} * plan.partial_rows + tile_row(i);
    };
    // Row and partial result of which this lane holds the row state; lanes of a row hold the same row_max and
    // row_sum.
    const int state_row = lane_ / kPartials % kRows, state_partial = lane_ % kPartials;
    float row_max = -INFINITY, row_sum = 0.0f;
    float4 out[kRows] = {};
#pragma unroll 1
    for (int done = 0; done < partials_.count; done += kPartials) {
      // Loads from L2: L1 is not coherent with writes of other SMs.
      float2 state = make_float2(-INFINITY, 0.0f);
      if (done + state_partial < partials_.count && tile_row(state_row) < end)
        state = __ldcg(plan.partial_state + row_at(state_row, done + state_partial));
      float4 values[kRows][kPartials];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int p = 0; p < kPartials; ++p) {
          values[i][p] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (done + p < partials_.count && tile_row(i) < end && lane_ * kColumnsPerLane < params_.head_dim_v)
            values[i][p] = __ldcg(reinterpret_cast<const float4*>(
                plan.partial_out + row_at(i, done + p) * params_.head_dim_v + lane_ * kColumnsPerLane));
        }
      float new_max = fmaxf(row_max, state.x);
#pragma unroll
      for (int step = 1; step < kPartials; step *= 2)
        new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, step));
      const MergeScales scales = merge_scales(row_max, state.x, new_max, softmax_scale_log2_);
      float added = scales.partial * state.y;
#pragma unroll
      for (int step = 1; step < kPartials; step *= 2) added += __shfl_xor_sync(0xffffffffu, added, step);
      row_max = new_max;
      row_sum = __fmaf_rn(row_sum, scales.before, added);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float before = __shfl_sync(0xffffffffu, scales.before, i * kPartials);
        out[i] = make_float4(out[i].x * before, out[i].y * before, out[i].z * before, out[i].w * before);
#pragma unroll
        for (int p = 0; p < kPartials; ++p) {
          const float scale = __shfl_sync(0xffffffffu, scales.partial, i * kPartials + p);
          out[i].x = __fmaf_rn(scale, values[i][p].x, out[i].x);
          out[i].y = __fmaf_rn(scale, values[i][p].y, out[i].y);
          out[i].z = __fmaf_rn(scale, values[i][p].z, out[i].z);
          out[i].w = __fmaf_rn(scale, values[i][p].w, out[i].w);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float max = __shfl_sync(0xffffffffu, row_max, i * kPartials),
                  sum = __shfl_sync(0xffffffffu, row_sum, i * kPartials);
      if (tile_row(i) < end) write(get_row(tile_row(i)), max, sum, out[i]);
    }
  }

  __device__ void write(const OutputRow& row, float row_max, float row_sum, const float4& out) const {
    const RowResult result = finish_row(params_, row_max, row_sum, softmax_scale_log2_, row.q_head);
    if (lane_ == 0 && params_.lse != nullptr)
      params_.lse[row.token * params_.lse_token_stride + row.q_head * params_.lse_head_stride] = result.lse;
    const int column = lane_ * kColumnsPerLane;
    if (column >= params_.head_dim_v) return;
    const int64_t to = row.token * params_.out.token_stride + row.q_head * params_.out.head_stride + column;
    const float elements[kColumnsPerLane] = {out.x, out.y, out.z, out.w};
#pragma unroll
    for (int i = 0; i < kColumnsPerLane; ++i)
      store_element(params_.out.data, to + i, params_.out_element, elements[i] * result.out_scale);
  }

  const AttentionParams& params_;
  const PartialResults& partials_;
  const float softmax_scale_log2_;
  const int lane_;
};

// Consumer warpgroups of prefill.cuh: order of the products, waits and releases.

// Consumer: one warpgroup, for all work tiles of the CTA.
template <class T, class Tile>
class PrefillConsumer : PrefillConsumerBase<Tile, PrefillShared<Tile>> {
  using Shared = PrefillShared<Tile>;
  using Base = PrefillConsumerBase<Tile, Shared>;
  using Base::kWarpgroupBarrier, Base::params_, Base::shared_, Base::warpgroup_, Base::queries_at,
      Base::release, Base::scheduler_barrier_arrive, Base::scheduler_barrier_sync, Base::work_tile_rows;
  // fp8 K/V are f16 in shared memory, so the products are those of f16.
  using Rows = PrefillRows<std::conditional_t<Tile::kConvertsKv, __half, T>, Tile>;
  // Converts bf16 queries to f16 then, each row scaled by a power of two. Scores are multiplied by the
  // inverse scale and by their descale: before the logit cap if there is one, else in the softmax.
  static constexpr bool kScalesRows = Tile::kConvertsKv && std::is_same_v<T, __nv_bfloat16>,
                        kScalesScores = kScalesRows || Tile::kHasHeadDescales,
                        kScalesInSoftmax = kScalesScores && !Tile::kHasLogitCap;
  using Splits = std::conditional_t<Tile::kFixedSplits, PrefillSplits<Rows>, NoPrefillSplits>;
  // Threads of the only consumer warpgroup in verify.
  struct Team {
    __device__ static int thread() { return ptx::tid_x() % 128; }
    __device__ static void sync() { ptx::barrier_sync(kWarpgroupBarrier, 128); }
  };

 public:
  // `warpgroup`: index among the consumers.
  __device__ PrefillConsumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : Base(params, shared, warpgroup), prefill_(params) {}

  // The last P V of a work tile and the first QK^T of the next are in flight together, and results of the
  // first are written while QK^T of the second runs (kOverlapsEpilogue). Without a previous or next work tile
  // the operands are arbitrary and the product is not read: ptxas requires wgmma without branches around it.
  __device__ __forceinline__ void run() {
    if (warpgroup_ == Tile::kConsumers - 1) scheduler_barrier_arrive();
    Rows rows;
    if constexpr (Tile::kOverlapsEpilogue) rows.clear_p();
    int pending_tiles = 0;  // KV tiles of the work tile with a last P V to issue
    for (;; work_tiles_.advance()) {
      if constexpr (Tile::kOverlapsEpilogue) {
        if (pending_tiles > 0) wait_for_values();
        ptx::wgmma_fence();
        rows.multiply_values(shared_.values(values().stage()), pending_tiles > 1);
      }
      ptx::mbarrier_wait(shared_.work_tile_full(work_tiles_.stage()), work_tiles_.parity());
      const PrefillWorkTile& work_tile = shared_.work_tile(work_tiles_.stage());
      // Fields of the work tile are read at their use, since the epilogue has few free registers and
      // predicates.
      if (!is_end(work_tile)) {
        ptx::mbarrier_wait(shared_.queries_full(queries().stage(), warpgroup_), queries().parity());
        if constexpr (kScalesRows) {
          if (has_rows(work_tile)) convert_queries(queries().stage());
        } else if (prefill_.box_tokens == 0) {
          ptx::fence_proxy_async();
        }
        if constexpr (kScalesScores && !kScalesRows) score_scales_[0] = score_scale(queries().stage());
      }
      if (count_kv_tiles(work_tile) > 0) wait_for_keys();

      const uint32_t q = queries_at(queries().stage());
      ScoreMask visible;
      if constexpr (Tile::kOverlapsEpilogue) {
        rows.multiply_keys(q, shared_.keys(keys_.stage()));
        if (kKeepsKeyEnds && count_kv_tiles(work_tile) > 0) visible = first_tile_score_mask(work_tile);
        ptx::wgmma_wait_group<1>();
        ptx::fence_operand(rows.out);
        if (pending_tiles > 0) {
          release_values(1);
          finish(rows, shared_.work_tile(work_tiles_.stage() ^ 1), queries().stage() ^ 1);
          release(shared_.work_tile_empty(work_tiles_.stage() ^ 1));
        }
        ptx::wgmma_wait_group<0>();
        pending_tiles = count_kv_tiles(work_tile);
      }
      if (is_end(work_tile)) break;
      if (count_kv_tiles(work_tile) > 0) {
        Splits splits(shared_.splits(warpgroup_), work_tile.first_key, params_.plan.kv_tile_keys);
        if constexpr (!Tile::kOverlapsEpilogue) {
          rows.load_queries_to_registers(q);
          ptx::wgmma_fence();
          rows.multiply_keys(q, shared_.keys(keys_.stage()));
          if (kKeepsKeyEnds) visible = first_tile_score_mask(work_tile);
          ptx::wgmma_wait_group<0>();
        }
        add_tiles(rows, splits, work_tile, q, visible);
        if constexpr (!Tile::kOverlapsEpilogue) {
          wait_for_values();
          ptx::wgmma_fence();
          rows.multiply_values(shared_.values(values().stage()),
                               Tile::kFixedSplits || count_kv_tiles(work_tile) > 1);
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
          skip_work_tile(work_tile);
        }
      }
      if (!Tile::kOverlapsEpilogue || pending_tiles == 0)
        release(shared_.work_tile_empty(work_tiles_.stage()));
    }
  }

 private:
  __device__ __forceinline__ static bool is_end(const PrefillWorkTile& work_tile) {
    return ptx::warp_uniform(work_tile.num_tiles) < 0;
  }
  // Returns the number of KV tiles that this warpgroup computes.
  __device__ __forceinline__ int count_kv_tiles(const PrefillWorkTile& work_tile) const {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    return has_rows(work_tile) ? max(num_tiles, 0) : 0;
  }
  __device__ __forceinline__ bool has_rows(const PrefillWorkTile& work_tile) const {
    return ptx::warp_uniform(work_tile.num_rows) > warpgroup_ * Tile::kConsumerRows;
  }
  // Returns the stage of the current work tile's queries.
  __device__ __forceinline__ PackedPipelineState<Tile::kQueryStages> queries() const {
    return work_tiles_.template with_stages<Tile::kQueryStages>();
  }

  // Called if the other consumer has rows and this one has none: joins the scheduler barriers and releases
  // the stages.
  __device__ __forceinline__ void skip_work_tile(const PrefillWorkTile& work_tile) {
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

  // Computes from the scores of the first KV tile to P of the last one. `visible`: keys of the first KV tile
  // that the rows attend to.
  __device__ __forceinline__ void add_tiles(Rows& rows, Splits& splits, const PrefillWorkTile& work_tile,
                                            uint32_t q, const ScoreMask& visible) {
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    if constexpr (Tile::kFixedSplits) rows.clear();
    // Uniform values: a value that the compiler treats as different per lane costs an instruction per
    // product, since descriptors are in uniform registers.
    const KeyRange full{ptx::warp_uniform(work_tile.full.begin), ptx::warp_uniform(work_tile.full.end)};
    int first_key = ptx::warp_uniform(work_tile.first_key);
    ptx::fence_operand(rows.scores);
    release_keys();
    if constexpr (Tile::kInPairs) {
      exchange_scores(rows);
      release_peer_scores();
    }
    if (caps()) cap(rows);
    if (!is_full(full, first_key))
      rows.mask_scores(kKeepsKeyEnds ? visible : score_mask(work_tile, first_key));
    rows.begin(softmax_scales());
    rows.pack_p();
    wait_for_keys_or_end(num_tiles > 1, work_tile);
    // Most tiles are plain and have a loop of their own: after a jump over the code of other tiles,
    // instructions would be fetched late.
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

  // Merges this CTA's share of a work tile with keys in several CTAs. If CTAs have one work tile each,
  // they share its rows; otherwise the last CTA merges all rows.
  __device__ __forceinline__ void merge(const PrefillWorkTile& work_tile) const {
    const KvPartition partition = plan_partition<Tile>(params_);
    const WorkTileRows rows = work_tile_rows(work_tile);
    const PartialResults partials =
        find_partial_results<false>(params_.plan, work_tile.tile, work_tile.head, partition);
    int32_t* const state =
        params_.plan.partials_done + work_tile.tile.index * params_.num_kv_heads + work_tile.head;
    SplitKvBarrier kv_barrier(state, partials.count, rows.num_rows, params_.plan.barrier_timeout_clocks);
    MergeRows share{0, rows.num_rows};
    if (partition.exclusive)
      share = arrive_and_wait<Team>(kv_barrier);
    else if (!complete_partials<Team>(state, 1, partials.count))
      share = {0, 0};
    VerifyMerge<Team>(params_, partials).merge(share, [&](int tile_row) {
      const TileRow row = rows.at(params_, tile_row);
      return OutputRow{rows.span.first_token + row.query, row.head};
    });
    Team::sync();
    if (partition.exclusive && Team::thread() == 0) kv_barrier.end();
  }

  // Writes results. `stage`: stage of the queries; results take its memory if TMA stores them.
  __device__ __forceinline__ void finish(Rows& rows, const PrefillWorkTile& work_tile, int stage) {
    float scale = Rows::Precision::kUnscale;
    if constexpr (Tile::kHasHeadDescales) {
      const HeadDescales descales = shared_.descales(stage);
      scale *= descales.out;
      // The merge does not apply descales.
      if constexpr (kScalesInSoftmax)
        for (float& row_max : rows.row_max) row_max *= descales.scores;
    }
    if constexpr (!Tile::kFixedSplits) rows.finish_sums();
    // Without this barrier the compiler assumes that the warps of a warpgroup diverge and serializes every
    // wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);

    const PrefillEpilogue<T, Rows, Tile> epilogue(params_, work_tile_rows(work_tile), warpgroup_, scale);
    if (stages_results(work_tile)) {
      epilogue.stage(rows, prefill_.softmax_scale_log2, queries_at(stage));
      ptx::fence_proxy_async();
      release(shared_.queries_empty(stage, warpgroup_));
      epilogue.write_lse(rows, prefill_.softmax_scale_log2);
    } else {
      epilogue.write(rows, prefill_.softmax_scale_log2, work_tile.partial_idx);
      if constexpr (Tile::kVerifies)
        if (work_tile.partial_idx >= 0) merge(work_tile);
    }
  }
  // Returns true if TMA stores the results of all rows of the warpgroup.
  __device__ __forceinline__ bool stages_results(const PrefillWorkTile& work_tile) const {
    return Tile::kStoresOutWithTma &&
           ptx::warp_uniform(work_tile.num_staged_rows) >= (warpgroup_ + 1) * Tile::kConsumerRows;
  }

  // QK^T of the KV tile that begins at `first_key`, and P V of the previous one. `more`: another KV tile
  // follows.
  template <bool kPlain>
  __device__ __forceinline__ void add_tile(Rows& rows, [[maybe_unused]] Splits& splits,
                                           const PrefillWorkTile& work_tile, uint32_t q, int first_key, int i,
                                           int num_tiles) {
    const bool more = i + 1 < num_tiles;
    [[maybe_unused]] ScoreMask visible;
    if constexpr (!kPlain && !kKeepsKeyEnds) visible = score_mask(work_tile, first_key);
    scheduler_barrier_sync();
    ptx::wgmma_fence();
    rows.multiply_keys(q, shared_.keys(keys_.stage()));
    wait_for_values();
    rows.multiply_values(shared_.values(values().stage()), Tile::kFixedSplits || i > 1);
    scheduler_barrier_arrive();
    if constexpr (!kPlain && kKeepsKeyEnds) visible = score_mask(work_tile, first_key);
    ptx::wgmma_wait_group<1>();
    ptx::fence_operand(rows.scores);
    if constexpr (Tile::kInPairs) exchange_scores(rows);
    const auto cap_and_mask = [&] {
      if constexpr (!kPlain) {
        if (caps()) cap(rows);
        rows.mask_scores(visible);
      }
    };
    cap_and_mask();
    if constexpr (Tile::kLazyRescale)
      make_p_with_stale_max(rows, work_tile, q, more, cap_and_mask);
    else
      make_p(rows, splits, work_tile, first_key, more);
  }

  // Computes P from scores in one step and waits for P V of the previous KV tile. `cap_and_mask`: caps and
  // masks scores.
  template <class CapAndMask>
  __device__ __forceinline__ void make_p_with_stale_max(Rows& rows, const PrefillWorkTile& work_tile,
                                                        uint32_t q, bool more,
                                                        const CapAndMask& cap_and_mask) {
    rows.exponentiate_with_stale_max(
        softmax_scales(),
        [&] {
          rows.multiply_keys_by_warp(q, shared_.keys(keys_.stage()));
          if constexpr (Tile::kInPairs) rows.add_scores(shared_.peer_scores(consumer_warp()));
          cap_and_mask();
        },
        [&] {
          ptx::wgmma_wait_group<0>();
          ptx::fence_operand(rows.out);
        });
    release_keys();
    if constexpr (Tile::kInPairs) release_peer_scores();
    wait_for_keys_or_end(more, work_tile);
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values(2);
    rows.pack_p();
  }

  // Sends the scores of this CTA's columns to the other CTA of the cluster, and adds those of its columns.
  // Both CTAs then have the same bits, since both add two numbers.
  __device__ __forceinline__ void exchange_scores(Rows& rows) {
    const int peer = ptx::cluster_rank() ^ 1;
    const uint32_t full = shared_.peer_scores_full(warpgroup_), scores = shared_.peer_scores(consumer_warp());
    if (threadIdx.x % 32 == 0)
      ptx::mbarrier_arrive_expect_tx(full, Tile::kPeerScoreBytes / Tile::kConsumerWarps);
    ptx::mbarrier_wait_cluster(shared_.peer_scores_empty(warpgroup_), peer_parity_ ^ 1);
    rows.send_scores(ptx::mapa(scores, peer), ptx::mapa(full, peer));
    ptx::mbarrier_wait_cluster(full, peer_parity_);
    peer_parity_ ^= 1;
    rows.add_scores(scores);
  }
  // Permits the other CTA to send the scores of the next KV tile.
  __device__ __forceinline__ void release_peer_scores() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      ptx::mbarrier_arrive_cluster(ptx::mapa(shared_.peer_scores_empty(warpgroup_), ptx::cluster_rank() ^ 1));
  }
  __device__ __forceinline__ int consumer_warp() const { return 4 * warpgroup_ + ptx::warp_in_warpgroup(); }

  // Same, with the row max computed before the exponentials.
  __device__ __forceinline__ void make_p(Rows& rows, [[maybe_unused]] Splits& splits,
                                         const PrefillWorkTile& work_tile, int first_key, bool more) {
    release_keys();
    [[maybe_unused]] bool begins_split = false;
    if constexpr (Tile::kFixedSplits)
      begins_split = splits.ends_before(first_key, params_.plan.kv_tile_keys, rows);
    rows.raise_max(prefill_.softmax_scale_log2);
    if constexpr (Tile::kOverlapsSoftmaxWithPv) {
      rows.exponentiate(softmax_scales());

      // The spin loop in this wait keeps the compiler from moving the next wait before the softmax.
      wait_for_keys_or_end(more, work_tile);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values(2);
    if constexpr (Tile::kFixedSplits)
      if (begins_split) splits.add_finished_split(rows, prefill_.softmax_scale_log2);
    if constexpr (!Tile::kOverlapsSoftmaxWithPv) {
      rows.exponentiate(softmax_scales());
      wait_for_keys_or_end(more, work_tile);
    }
    rows.rescale_and_pack_p();
  }

  // Returns true if every row attends to all keys of the KV tile.
  __device__ __forceinline__ static bool is_full(const KeyRange& full, int first_key) {
    return first_key >= full.begin && first_key + Tile::kKeys <= full.end;
  }
  // Called for the first KV tile, before the others.
  __device__ __forceinline__ ScoreMask first_tile_score_mask(const PrefillWorkTile& work_tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      ends_[half] =
          Rows::row_key_end(params_, work_tile_rows(work_tile), prefill_row<Tile>(warpgroup_) + 8 * half,
                            {work_tile.tile.kv_begin, work_tile.tile.kv_end});
    return score_mask(work_tile, work_tile.first_key);
  }
  __device__ __forceinline__ ScoreMask score_mask(const PrefillWorkTile& work_tile, int first_key) const {
    if constexpr (kKeepsKeyEnds)
      if (!Rows::has_windows(params_.batch))
        return Rows::score_mask(ends_, first_key, work_tile.tile.kv_begin);
    return Rows::score_mask(params_, work_tile_rows(work_tile), prefill_row<Tile>(warpgroup_), first_key,
                            {work_tile.tile.kv_begin, work_tile.tile.kv_end});
  }
  __device__ __forceinline__ bool caps() const { return Tile::kHasLogitCap && params_.logit_cap > 0.0f; }
  __device__ __forceinline__ void cap(Rows& rows) const {
    ScoreCap cap(params_);
    if constexpr (kScalesScores && !kScalesRows) cap.to_exponent *= score_scales_[0];
#pragma unroll
    for (int i = 0; i < Tile::kKeys / 2; ++i) {
      if constexpr (kScalesRows) rows.scores[i] *= score_scales_[i / 2 % 2];
      rows.scores[i] = cap(rows.scores[i]);
    }
  }

  // Returns the factor of scores of a stage's queries, applied in the softmax or before the logit cap.
  __device__ __forceinline__ float score_scale(int stage) const {
    const float scale = kScalesInSoftmax ? prefill_.softmax_scale_log2 : 1.0f;
    if constexpr (Tile::kHasHeadDescales) return scale * shared_.descales(stage).scores;
    return scale;
  }
  // Converts the queries of the work tile to f16.
  __device__ __forceinline__ void convert_queries(int stage) {
    const float scale = score_scale(stage);
    const RowScales from_f16 = queries_to_f16<Tile>(queries_at(stage));
#pragma unroll
    for (int half = 0; half < 2; ++half) score_scales_[half] = from_f16[half] * scale;
    if constexpr (Tile::kHasHeadDescales)
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
  // Converts the row max to that of scores of unscaled queries.
  __device__ __forceinline__ void unscale_row_max(Rows& rows) const {
    if constexpr (Tile::kHasHeadDescales) {
      rows.row_max[0] *= __uint_as_float(query_scales_ << 16);
      rows.row_max[1] *= __uint_as_float(query_scales_ & 0xffff0000u);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        rows.row_max[half] *= power_of_two_between(prefill_.softmax_scale_log2, score_scales_[half]);
    }
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage()), keys_.parity());
    if (Tile::kMayLoadRows && (Tile::kByRows || prefill_.box_rows == 0)) ptx::fence_proxy_async();
  }
  // Waits for the next K. After the last one the queries are released: with one stage of queries, those of
  // the next work tile are needed immediately.
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
  // Stage of V of the KV tile before that of keys_.
  __device__ __forceinline__ auto values() const { return values_before(1); }
  __device__ __forceinline__ auto values_before(uint32_t num_tiles) const {
    return keys_.before(num_tiles).template with_stages<Tile::kStages>();
  }
  __device__ __forceinline__ void wait_for_values() const {
    ptx::mbarrier_wait(shared_.values_full(values().stage()), values().parity());
    // The condition is written differently from that of keys: a common one would take a predicate, and masks
    // need all of them.
    if (Tile::kMayLoadRows && (Tile::kByRows || prefill_.box_rows < 1)) ptx::fence_proxy_async();
  }
  // `tiles_before`: number of KV tiles before that of keys_.
  __device__ __forceinline__ void release_values(uint32_t tiles_before) {
    release(shared_.values_empty(values_before(tiles_before).stage()));
  }
  // Releases the queries unless results take their memory; finish() releases them then.
  __device__ __forceinline__ void release_queries(const PrefillWorkTile& work_tile) {
    if (!stages_results(work_tile)) release(shared_.queries_empty(queries().stage(), warpgroup_));
  }
  const PrefillParams& prefill_;
  PackedPipelineState<Tile::kWorkTileStages> work_tiles_;
  // First key after those that the thread's rows attend to in the work tile. Three warpgroups, and two with a
  // warpgroup that converts fp8, have no registers for it.
  static constexpr bool kKeepsKeyEnds =
      Tile::kConsumers == 2 && Tile::kWarpsPerOperand == 1 && !Tile::kHasRowWarpgroup;
  int ends_[2];
  // Factors of scores of the thread's rows; only the first is used if queries were not scaled.
  float score_scales_[2];
  // Query scales without descales, two in a register: they are powers of two, so bf16 is exact.
  uint32_t query_scales_;
  uint32_t peer_parity_ = 0;  // of the next scores of the other CTA
  // Wraps when K and V are both at their first stage.
  static constexpr uint32_t kRounds =
      Tile::kKeyStages == Tile::kStages ? count_wrap(Tile::kStages) : 2 * Tile::kKeyStages * Tile::kStages;
  PackedPipelineState<Tile::kKeyStages, kRounds> keys_;
};

template <class Tile, bool kValues>
__device__ __forceinline__ void load_keys_or_values(const PrefillParams& params,
                                                    const PrefillShared<Tile>& shared) {
  if constexpr (Tile::kConvertsKv)
    PrefillProducer<PrefillFp8Tile<Tile>, PrefillFp8Shared<Tile>, kValues>(params, shared).run();
  else
    PrefillProducer<Tile, PrefillShared<Tile>, kValues>(params, shared).run();
}

template <class T, Element kKv, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kCtasPerSm)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const PrefillShared<Tile> shared(memory);
  const bool by_rows = Tile::kMayLoadRows && (Tile::kByRows || params.box_rows == 0);
  if (threadIdx.x == 0) shared.init_barriers(by_rows);
  if constexpr (Tile::kVerifies) {
    if (threadIdx.x == 32 && params.box_rows > 0) {
      ptx::prefetch_tensormap(&params.k);
      ptx::prefetch_tensormap(&params.v);
    }
    if (threadIdx.x == 32 && params.box_tokens > 0) ptx::prefetch_tensormap(&params.q);
  }
  const int warp = begin_roles<Tile>(params.attention);
  // Barriers of the other CTA are initialized before scores are sent to it.
  if constexpr (Tile::kInPairs) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
  if (warp >= Tile::kProducerWarps) {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile>(params, shared, (warp - Tile::kProducerWarps) / 4).run();
  } else if (warp >= Tile::kConvertWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    const int producer = warp - Tile::kConvertWarps;
    const int first_query_warp = by_rows ? Tile::kRowWarps : Tile::kLoadWarps;
    const int query_warps = by_rows && Tile::kSeparateQueryWarp ? 1 : Tile::kQueryWarps;
    if (producer >= first_query_warp) {
      if (producer < first_query_warp + query_warps)
        PrefillScheduler<Tile, PrefillShared<Tile>>(params, shared, producer - first_query_warp, query_warps)
            .run();
    } else if (by_rows) {
      if constexpr (Tile::kMayLoadRows)
        PrefillRowProducer<Tile, PrefillShared<Tile>>(params, shared, producer).run();
    } else if (producer == 0) {
      load_keys_or_values<Tile, false>(params, shared);
    } else {
      load_keys_or_values<Tile, true>(params, shared);
    }
  } else if constexpr (Tile::kConvertsKv) {
    ptx::setmaxnreg_dec<Tile::kConvertRegisters>();
    if (warp < Tile::kWarpsPerOperand)
      PrefillConverter<kKv, Tile, false>(shared, warp).run();
    else
      PrefillConverter<kKv, Tile, true>(shared, warp - Tile::kWarpsPerOperand).run();
  }
  // The other CTA has no accesses to this one's memory left.
  if constexpr (Tile::kInPairs) {
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

template <class T, Element kKv, class Tile>
void launch_prefill_tile(const PrefillParams& params, int num_ctas, void* stream) {
  launch_prefill_kernel<prefill_kernel<T, kKv, Tile>, Tile, PrefillShared<Tile>>(params, num_ctas, stream);
}

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV, bool kDescales>
void launch_converting_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  using enum PrefillKind;
  if (params.attention.logit_cap > 0.0f)
    launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, true, kMany, true, kDescales>>(
        params, num_ctas, stream);
  else
    launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, true, kMany, false, kDescales>>(
        params, num_ctas, stream);
}

// Launches prefill for 16-bit K and V that are copied row by row. Defined in prefill_by_rows.cuh, for a
// separate translation unit: compiled together with the other kernels, ptxas spills registers of this one.
template <class T, int kHeadDimQk, int kHeadDimV>
void launch_prefill_by_rows(const PrefillParams& params, int num_ctas, void* stream);

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV>
void launch_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  using enum PrefillKind;
  if constexpr (is_fp8(kKv)) {
    if (has_descales(params.attention))
      launch_converting_prefill<T, kKv, kHeadDimQk, kHeadDimV, true>(params, num_ctas, stream);
    else
      launch_converting_prefill<T, kKv, kHeadDimQk, kHeadDimV, false>(params, num_ctas, stream);
  } else {
    const PlanView& plan = params.attention.plan;
    if constexpr (has_fixed_splits({kHeadDimQk, kHeadDimV}))
      if (plan.split_accumulators != nullptr)
        return launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, kFixedSplits>>(
            params, num_ctas, stream);
    if constexpr (may_verify(kHeadDimV, false))
      if (verifies(plan))
        return launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, kVerify>>(
            params, num_ctas, stream);
    if (params.attention.logit_cap > 0.0f)
      launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false>>(params, num_ctas, stream);
    else if (params.box_rows == 0)
      launch_prefill_by_rows<T, kHeadDimQk, kHeadDimV>(params, num_ctas, stream);
    else
      launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, kMany, false>>(params, num_ctas,
                                                                                           stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
