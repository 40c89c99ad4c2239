// Attention on mma.sync for Ampere and later GPUs: query rows of one request and KV head (GQA heads packed
// with query tokens) against KV tiles of 64 keys. Rows of K and V are looked up individually, so that one
// code path serves any page size and layout. fp8 K/V are copied unconverted and become f16 in registers.
//
//   tile        8, 16, 32, 64 or 128 rows x 64 keys (32 and 128 rows: head dim of V up to 128); for fp8, 8
//   and
//               16 rows up to head dim 128 x 128 keys. Head dims 64/64, 128/128, 192/128, 256/256
//   warps       4, all alike: all look up and copy with cp.async, all multiply with mma.m16n8k16, for 8 rows
//               with keys as rows of operand A. 8, 16 and 32 rows: a warp has a quarter of the keys, and the
//               warps merge at the end, on sm_90 also the eight CTAs of a cluster if work tiles are few. 64
//               rows: 16 rows per warp. 128 rows: 32 rows per warp, or 8 warps of 16 at head dim 192
//   registers   168 to 255 per thread, including 16 to 128 output accumulators. Fewer in decode would allow a
//               third CTA of the next kernel on an SM, and leave other SMs with one
//   shared      16-bit K/V, for 16 / 64 / 128 rows: 36 / 42 / 84 KB at head dim 64, 70 / 82 / 98 at 128, 88 /
//               106 / 130 at 192, 138 / 98 / - at 256; fp8: 38 / 26 / 35, 72 / 50 / 67, 48 / 66 / 91, 74 / 98
//               / -. 32 rows: 39, 75, 94; fp8 39, 75, 79. In clusters 53, 103, 88, 138 for 16 rows, 55, 107,
//               97 for 32; 8 rows as 16, less some KB. Queries, and 1 to 3 stages of a KV tile, which the
//               output staging overlays
//   bytes       per KV tile: 128 (head_dim_qk + head_dim_v), half of it in fp8
//   bound       8, 16 and 32 rows: reading K/V; 64 and 128 rows: tensor cores and the softmax's exponentials
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/complete_partials.cuh"
#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/key_major_tile.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/split_kv_barrier.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_epilogue.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_queries.cuh"
#include "attend/kernels/attention/cuda/sm80/kv_pipeline.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_partials.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/split_accumulators.cuh"
#include "attend/kernels/attention/cuda/sm80/store_new_keys.cuh"
#include "attend/kernels/attention/cuda/sm80/warp_tile.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// A CTA. `kElement`: element type of K and V; the MMAs have this type, or f16 for fp8. `kFixedSplits`: the
// plan has fixed splits. `kInlinePlan`: the CTAs derive the plan. `kClusters`: a CTA of the plan is a
// cluster, and its CTAs share the keys.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kInlinePlan,
          bool kClusters>
class AttentionCta {
  static constexpr bool kFp8 = is_fp8(kElement);
  using T = std::conditional_t<kElement == Element::kBF16, __nv_bfloat16, __half>;
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kFp8, kTileRows, kClusters>;
  static_assert(!kFixedSplits || Config::kWarpsN == 1, "warps that share rows sum in another order");
  // If a taller tile serves many rows, this one may leave warps without rows.
  static constexpr bool kMayHaveIdleWarps = kTileRows == 64 && max_tile_rows(kHeadDimV) == 128;
  // An SM with a single CTA copies data during the softmax that QK^T would otherwise wait for.
  static constexpr bool kCopiesAfterQk = kClusters && Config::kStages == 3;
  // Merges partial results with fewer loads in flight if registers are limited: in tall tiles, which have few
  // partial results, and in tiles that hold many queries (kManyAccumulators), have fp8 keys and derive a
  // plan.
  static constexpr bool kManyAccumulators =
      kTileRows == 16 ? kHeadDimQk == 128 : kTileRows == kKeyMajorRows && kHeadDimQk == 192;
  static constexpr bool kMergesInShared = kTileRows == 128 || (kFp8 && kInlinePlan && kManyAccumulators);
  static constexpr int kMergeUnroll = kMergesInShared ? 8 : merge_at_once(kHeadDimV);
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kKeys = Config::kKeys;
  static constexpr int kKeysPerWarp = kKeys / Config::kWarpsN;
  static constexpr int kBytes = kFp8 ? 1 : 2;
  // Fixed splits may end between two key tiles.
  static constexpr int kTilesPerStage = kFixedSplits ? 1 : Config::kTilesPerStage;
  static constexpr int kStageKeys = kKeys * kTilesPerStage;
  using Pipeline = KvPipeline<kHeadDimQk, kHeadDimV, kBytes, kStageKeys, kThreads, Config::kStages,
                              Config::kFillsAllStages, Config::kDecode>;
  using RowMajorWarp = std::conditional_t<
      kFp8,
      Fp8WarpTile<kElement, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp,
                  Config::kRegisterQuerySteps>,
      WarpTile<T, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kRegisterQuerySteps>>;
  using KeyMajorWarp =
      std::conditional_t<kFp8, Fp8KeyMajorTile<kElement, kHeadDimQk, kHeadDimV, kKeysPerWarp>,
                         KeyMajorTile<T, kHeadDimQk, kHeadDimV, kKeysPerWarp>>;
  using Warp = std::conditional_t<kRows == kKeyMajorRows, KeyMajorWarp, RowMajorWarp>;
  using Epilogue = AttentionEpilogue<T, Config, kHeadDimV, Warp, kClusters>;

  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  // The staging of the epilogue overlays the stages.
  static constexpr int kFullKeysAt =
      kQueryBytes +
      (Pipeline::kSharedBytes > Epilogue::kSharedBytes ? Pipeline::kSharedBytes : Epilogue::kSharedBytes);
  static constexpr int kWorkTileRowsAt = kFullKeysAt + static_cast<int>(sizeof(KeyRange));
  static constexpr int kRowScalesAt = kWorkTileRowsAt + static_cast<int>(sizeof(WorkTileRows));

  // Tall tiles have no registers for an inline plan; their requests have several row tiles.
  static_assert(!kInlinePlan || (kTileRows <= 64 && !kFixedSplits));
  using Plan = CtaPlan<kThreads, kInlinePlan>;
  // Stores new keys if the request has a single row tile.
  static constexpr bool kStoresNewKeys = kInlinePlan && !kFp8;

 public:
  static constexpr int kSharedBytes = kRowScalesAt + (kFp8 ? kRows * static_cast<int>(sizeof(float)) : 0);

  __device__ AttentionCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), pipeline_(params, shared + kQueryBytes) {}

  __device__ void run() {
    const bool prefetches_prefix = Config::kPrefetchesPrefix && params_.prefix_ready;
    if (!prefetches_prefix) sync_with_previous_kernel();
    const Plan plan(params_);
    const int cta = kClusters ? ptx::cluster_id() : static_cast<int>(blockIdx.x);
    const PlanStart start = plan.start(cta);
    if (!prefetches_prefix) write_padding(params_, start.header.num_tokens);
    bool prefetches = prefetches_prefix;
    walk_plan<kFixedSplits>(params_, plan, cta, start,
                            [&](const RowTile& tile, int head, const KvTileRange& range) {
                              const WorkTileRows rows(params_, tile, head, kRows);
                              attend(rows, tile, range, prefetches);
                              prefetches = false;
                              if (range.partial_idx >= 0 && params_.plan.ctas_merge)
                                finish_work_tile(plan, rows, tile, range);
                            });
    if (prefetches_prefix) {
      if (prefetches) ptx::griddepcontrol_wait();
      write_padding(params_, params_.batch.cu_seqlen_q[params_.batch.num_reqs]);
    }
    if constexpr (!Config::kDecode) ptx::launch_dependents();
  }

 private:
  // Decode leaves most of an SM's registers and shared memory free, so the next kernel may prefetch
  // concurrently.
  __device__ static void sync_with_previous_kernel() {
    ptx::griddepcontrol_wait();
    if constexpr (Config::kDecode) ptx::launch_dependents();
  }

  // Called after a partial result of the work tile was written: if it was the last one, merges all of them.
  __device__ void finish_work_tile(const Plan& plan, const WorkTileRows& rows, const RowTile& tile,
                                   const KvTileRange& range) {
    const PartialResults partials =
        find_partial_results<kFixedSplits>(params_.plan, tile, rows.head, plan.partition());
    int32_t* const num_done = params_.plan.partials_done + tile.index * params_.num_kv_heads + rows.head;
    const auto get_row = [&](int tile_row) {
      const TileRow row = rows.at(params_, tile_row);
      return OutputRow{rows.span.first_token + row.query, row.head};
    };
    const int num_new = kFixedSplits ? range.count : 1;
    const int num_ctas = partials.count * (kClusters ? kClusterSize : 1);
    if constexpr (Config::kDecode) {
      if (plan.partition().exclusive) {
        SplitKvBarrier kv_barrier(num_done, num_ctas, rows.num_rows, params_.plan.barrier_timeout_clocks);
        const MergeRows share = arrive_and_wait<AllThreads>(kv_barrier);
        RowMerge<kHeadDimV, kThreads>(params_, partials, kv_barrier.rows_per_cta(),
                                      reinterpret_cast<float*>(shared_ + kQueryBytes))
            .merge(share, get_row);
        if (threadIdx.x == 0) kv_barrier.end();
        return;
      }
    }
    if (complete_partials(num_done, num_new, num_ctas))
      merge_partials<kHeadDimV, kThreads, kMergeUnroll>(params_, partials, 0, rows.num_rows, get_row);
  }

  // `prefetches`: the previous kernel has not finished. Keys of the prefix are loaded immediately; keys that
  // it may still write, after griddepcontrol_wait().
  __device__ void attend(const WorkTileRows& work_tile, RowTile tile, const KvTileRange& range,
                         bool prefetches) {
    const BatchParams& batch = params_.batch;
    const int last_query = work_tile.at(params_, work_tile.num_rows - 1).query;
    if (batch.window_left >= 0 || batch.chunk > 0)
      clip_to_layer(tile, key_range(batch, work_tile.span, work_tile.first_query, last_query));
    // The plan may be that of a layer without a window: keys outside of this layer's window are not read.
    const int kv_tile_keys = params_.plan.kv_tile_keys;
    const int range_begin = (tile.first_kv_tile + range.first) * kv_tile_keys;
    int first_position = max(range_begin, tile.kv_begin / kKeys * kKeys);
    int range_end = min(range_begin + range.count * kv_tile_keys, tile.kv_end);
    if constexpr (kClusters) {
      constexpr int kKeysPerRound = kClusterSize * kKeys;
      const int share = max(0, range_end - first_position + kKeysPerRound - 1) / kKeysPerRound * kKeys;
      first_position += ptx::cluster_rank() * share;
      range_end = min(range_end, first_position + share);
    }
    const int num_stages = max(0, (range_end - first_position + kStageKeys - 1) / kStageKeys);
    pipeline_.set_tiles(tile, work_tile.head, first_position, range_end, num_stages);
    // Before locate(), since they are read after its barrier.
    if (kStoresNewKeys && params_.batch.seqlen_new > 0)
      store_new_keys<kThreads>(params_, tile.request, tile.seqlen_kv, work_tile.head, first_position,
                               range_end);
    int num_filled = 0;
    if (Config::kPrefetchesPrefix && prefetches) {
      pipeline_.locate();
      num_filled = pipeline_.fill_before(work_tile.span.prefix());
      ptx::griddepcontrol_wait();
    }
    const auto descale = [&](const HeadScaleParams& scales) {
      // Tall tiles have no registers for descales.
      return kFp8 && Config::kDecode ? load_head_scale(scales, tile.request, work_tile.head) : 1.0f;
    };
    const float value_scale = descale(params_.v_scales);
    ConvertedQueries<kHeadDimQk, kRows, kThreads> queries;
    float score_scale = 1.0f;
    if constexpr (kFp8) {
      queries.load(params_, work_tile);
      score_scale = descale(params_.q_scales) * descale(params_.k_scales);
    } else {
      copy_queries<kHeadDimQk, kRows, kThreads>(params_, work_tile, shared_);
    }
    // Overlaps with the page lookups. The result is read after the barrier of locate().
    if (threadIdx.x == 0) find_full_keys(work_tile, last_query);
    if (!Config::kPrefetchesPrefix || !prefetches)
      pipeline_.locate();
    else if (kFixedSplits)
      __syncthreads();
    pipeline_.fill(num_filled);
    // Called after these copies were issued, so that copies of the next kernel follow them, and before later
    // copies of this kernel.
    if (Config::kDecode && prefetches) ptx::launch_dependents();
    // Read after the barrier of the first tile.
    if constexpr (kFp8) queries.store(params_, score_scale, shared_, row_scales());
    const WorkTileRows& rows = kFixedSplits ? shared_rows() : work_tile;

    Warp warp;
    warp.clear();
    const float softmax_scale_log2 = get_softmax_scale_log2(params_);
    const uint32_t q = ptx::shared_address(shared_) +
                       static_cast<uint32_t>(warp_row<Config>(threadIdx.x) * kHeadDimQk * 2) +
                       Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kHeadDimQk * kBytes) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(warp_key() * kHeadDimV * kBytes) + Warp::value_lane();
    const bool has_rows = !kMayHaveIdleWarps || warp_row<Config>(threadIdx.x) < rows.num_rows;
    int i = 0;
    const int num_splits = kFixedSplits ? range.count : 1;
    for (int split = 0; split < num_splits; ++split) {
      const int split_end = range_begin + (split + 1) * kv_tile_keys;
      const int end = kFixedSplits ? min(num_stages, (split_end - first_position) / kStageKeys) : num_stages;
      for (; i < end; ++i) {
        pipeline_.wait(i);
        if (i == 0) warp.load_queries_to_registers(q);
        if constexpr (kCopiesAfterQk)
          pipeline_.look_up_next(i);
        else
          pipeline_.refill(i);
        if (!has_rows) {
          pipeline_.wait_for_values(i);
          pipeline_.publish_next(i);
          continue;
        }
#pragma unroll 1
        for (int t = 0; t < kTilesPerStage; ++t) {
          const int first_key = pipeline_.first_position(i) + t * kKeys;
          if (kTilesPerStage > 1 && first_key >= range_end) break;
          const uint32_t k = pipeline_.k(i) + in_k + static_cast<uint32_t>(t * kKeys * kHeadDimQk * kBytes);
          compute_p(rows, warp, q, k, softmax_scale_log2, i, first_key, i == 0 && t == 0);
          if (t == 0) pipeline_.publish_next(i);
          warp.multiply_pv(pipeline_.v(i) + in_v + static_cast<uint32_t>(t * kKeys * kHeadDimV * kBytes));
        }
      }
      warp.finish_sums();
      const bool last = split + 1 == num_splits;
      if constexpr (kFixedSplits) {
        const SplitAccumulators<kHeadDimV, Config::kRowBlocks, kThreads> split_acc(
            params_.plan.split_accumulators);
        const bool saves_split = has_rows && range.partial_idx < 0;
        if (saves_split && split > 0) split_acc.add_to(warp, softmax_scale_log2);
        if (saves_split && !last) split_acc.put(warp);
      }
      if (last) ptx::cp_async_wait_group<0>();
      if (range.partial_idx >= 0 || last)
        Epilogue(params_, rows, value_scale, shared_ + kQueryBytes)
            .write(warp, softmax_scale_log2, range.partial_idx < 0 ? -1 : range.partial_idx + split);
      if (!last) warp.clear();
    }
  }

  // Computes P of the key tile from `first_key` in stage i: QK^T, mask, softmax. `first`: first tile of the
  // work tile.
  __device__ void compute_p(const WorkTileRows& rows, Warp& warp, uint32_t q, uint32_t k,
                            float softmax_scale_log2, int i, int first_key, bool first) {
    if constexpr (Config::kStaleMax && !kFixedSplits) {
      bool raises = first;
      uint32_t rows_to_raise = ~0u;
      while (true) {
        warp.multiply_qk(q, k);
        finish_scores(rows, warp, first_key);
        if (raises) warp.raise_row_max(softmax_scale_log2, rows_to_raise);
        if (warp.softmax_with_stale_max(softmax_scale_log2, raises, rows_to_raise)) return;
        raises = true;
      }
    } else {
      warp.multiply_qk(q, k);
      if constexpr (kCopiesAfterQk) pipeline_.start_copies(i);
      pipeline_.wait_for_values(i);
      finish_scores(rows, warp, first_key);
      warp.softmax(softmax_scale_log2);
    }
  }

  // Scales, caps and masks the scores.
  __device__ void finish_scores(const WorkTileRows& rows, Warp& warp, int first_key) {
    // Undoes the row scaling of ConvertedQueries.
    if constexpr (kFp8) warp.scale_scores(row_scales() + warp_row<Config>(threadIdx.x));
    if (params_.logit_cap > 0.0f) cap_scores(params_, warp);
    const KeyRange full = full_keys();
    // A stage of several key tiles may extend past the CTA's range.
    constexpr bool kEnds = Config::kTwoKeyTiles;
    const int end = kEnds ? min(full.end, pipeline_.end()) : full.end;
    if (first_key < full.begin || first_key + kKeys > end)
      mask_scores<kEnds>(params_, rows, warp, warp_row<Config>, first_key + warp_key(), pipeline_.end());
  }

  __device__ static int warp_key() {
    return static_cast<int>(threadIdx.x) / 32 % Config::kWarpsN * kKeysPerWarp;
  }

  // Finds the keys that every row of the tile sees. Called by one thread.
  __device__ void find_full_keys(const WorkTileRows& rows, int last_query) const {
    const BatchParams& batch = params_.batch;
    KeyRange full{0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      full = full_key_range(batch, rows.span, rows.first_query, last_query);
    full_keys() = full;
    if (kFixedSplits) shared_rows() = rows;
  }
  // Kept in shared memory, to save registers for the accumulators.
  __device__ WorkTileRows& shared_rows() const {
    return *reinterpret_cast<WorkTileRows*>(shared_ + kWorkTileRowsAt);
  }
  __device__ KeyRange& full_keys() const { return *reinterpret_cast<KeyRange*>(shared_ + kFullKeysAt); }

  __device__ float* row_scales() const { return reinterpret_cast<float*>(shared_ + kRowScalesAt); }

  const AttentionParams& params_;
  char* shared_;
  Pipeline pipeline_;
};

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kInlinePlan,
          bool kClusters>
__global__ void __launch_bounds__(
    TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows, kClusters>::kThreads,
    TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows, kClusters>::kCtasPerSm)
    attention_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kInlinePlan, kClusters>(params,
                                                                                                 shared)
      .run();
}

}  // namespace attend::kernels::cuda::sm80
