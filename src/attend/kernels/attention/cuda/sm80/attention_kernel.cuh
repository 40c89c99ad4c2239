// Attention with mma.sync: query rows of one request and KV head (GQA heads packed with query tokens) against
// tiles of 64 keys. Keys are looked up row by row, so that any page size and layout is one code path.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/score_rules.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/common/visible.cuh"
#include "attend/kernels/attention/cuda/sm80/attention_tile.cuh"
#include "attend/kernels/attention/cuda/sm80/fp8_tile.cuh"
#include "attend/kernels/attention/cuda/sm80/key_stages.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_parts.cuh"
#include "attend/kernels/attention/cuda/sm80/query_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/result_rows.cuh"
#include "attend/kernels/attention/cuda/sm80/split_bank.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm80 {

// `kElement`: of K and V. The products are of this type, of f16 for fp8. `kFixedSplits`: the plan has them.
// `kPlans`: its CTAs derive it.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kPlans>
class AttentionCta {
  static constexpr bool kFp8 = is_fp8(kElement);
  using T = std::conditional_t<kElement == Element::kBF16, __nv_bfloat16, __half>;
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kFp8, kTileRows>;
  static_assert(!kFixedSplits || Config::kWarpsN == 1, "warps that share rows add in another order");
  // Where a taller tile takes many rows, this one may have few, and some warps none.
  static constexpr bool kMayHaveFewRows = kTileRows == 64 && max_tile_rows(kHeadDimV) == 128;
  // Tall tiles have no registers for more, and few parts.
  static constexpr int kMergeAtOnce = kTileRows == 128 ? 8 : merge_at_once(kHeadDimV);
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kKeys = Config::kKeys;
  static constexpr int kKeysPerWarp = kKeys / Config::kWarpsN;
  static constexpr int kBytes = kFp8 ? 1 : 2;
  // Fixed splits may end between two key tiles.
  static constexpr int kTilesPerStage = kFixedSplits ? 1 : Config::kTilesPerStage;
  static constexpr int kStageKeys = kKeys * kTilesPerStage;
  using Stages =
      KeyStages<kHeadDimQk, kHeadDimV, kBytes, kStageKeys, kThreads, Config::kStages, Config::kFillsRing>;
  using Warp = std::conditional_t<
      kFp8,
      Fp8WarpTile<kElement, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kHeldSteps>,
      WarpTile<T, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kHeldSteps>>;
  using Results = ResultRows<T, Config, kHeadDimV, Warp>;

  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  // Results lie over the stages.
  static constexpr int kFullKeysAt =
      kQueryBytes +
      (Stages::kSharedBytes > Results::kSharedBytes ? Stages::kSharedBytes : Results::kSharedBytes);
  static constexpr int kJobRowsAt = kFullKeysAt + static_cast<int>(sizeof(KeyRange));
  static constexpr int kRowScalesAt = kJobRowsAt + static_cast<int>(sizeof(JobRows));

  // Tall tiles have no registers for it; their requests have several.
  static_assert(!kPlans || (kTileRows <= 64 && !kFixedSplits));
  using Plan = CtaPlan<kThreads, kPlans>;

 public:
  static constexpr int kSharedBytes = kRowScalesAt + (kFp8 ? kRows * static_cast<int>(sizeof(float)) : 0);

  __device__ AttentionCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), stages_(params, shared + kQueryBytes) {}

  __device__ void run() {
    const bool starts_early = Config::kStartsEarly && params_.old_keys_settled;
    if (!starts_early) meet_previous_kernel();
    const Plan plan(params_);
    const PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    if (!starts_early) write_padding(params_, start.header.num_tokens);
    bool is_early = starts_early;
    walk_plan<kFixedSplits>(params_, plan, start, [&](const RowTile& tile, int head, const JobPart& part) {
      const JobRows rows(params_, tile, head, kRows);
      attend(rows, tile, part, is_early);
      is_early = false;
      if (part.slot >= 0 && params_.plan.ctas_merge) finish_job(plan, rows, tile, part);
    });
    if (starts_early) {
      if (is_early) ptx::griddepcontrol_wait();
      write_padding(params_, params_.batch.cu_seqlen_q[params_.batch.num_reqs]);
    }
    if constexpr (!Config::kDecode) ptx::launch_dependents();
  }

 private:
  // Few rows leave most of an SM idle: the next kernel may fetch what it needs beside them.
  __device__ static void meet_previous_kernel() {
    ptx::griddepcontrol_wait();
    if constexpr (Config::kDecode) ptx::launch_dependents();
  }

  // After a part of the job: merges all of them if this was the last to be computed.
  __device__ void finish_job(const Plan& plan, const JobRows& rows, const RowTile& tile,
                             const JobPart& part) {
    const JobParts parts = parts_of<kFixedSplits>(params_.plan, tile, rows.head, plan.units_per_cta());
    int32_t* const num_done = params_.plan.parts_done + tile.index * params_.num_kv_heads + rows.head;
    if (!complete_parts(num_done, kFixedSplits ? part.count : 1, parts.count)) return;
    merge_parts<kHeadDimV, kThreads, kMergeAtOnce>(params_, parts, 0, rows.num_rows, [&](int tile_row) {
      const TileRow row = rows.at(params_, tile_row);
      return OutputRow{rows.span.first_token + row.query, row.head};
    });
  }

  // `is_early`: before the kernel before has ended. What it may still write is asked for when it has.
  __device__ void attend(const JobRows& job, RowTile tile, const JobPart& part, bool is_early) {
    find_ranges(job, tile);
    // The plan may be one of a layer without a window: what lies behind this layer's window is not read.
    const int unit_keys = params_.plan.unit_keys;
    const int part_begin = (tile.first_unit + part.first) * unit_keys;
    const int first_position = max(part_begin, tile.kv_begin / kKeys * kKeys);
    const int part_end = min(part_begin + part.count * unit_keys, tile.kv_end);
    const int num_stages = max(0, (part_end - first_position + kStageKeys - 1) / kStageKeys);
    stages_.aim(tile, job.head, first_position, part_end, num_stages);
    int num_begun = 0;
    if (Config::kStartsEarly && is_early) {
      stages_.locate();
      num_begun = stages_.begin_before(job.span.prefix());
      ptx::griddepcontrol_wait();
    }
    if constexpr (kFp8)
      convert_queries<kHeadDimQk, kRows, kThreads>(params_, job, shared_, row_scales());
    else
      copy_queries<kHeadDimQk, kRows, kThreads>(params_, job, shared_);
    if (!Config::kStartsEarly || !is_early) stages_.locate();
    stages_.begin(num_begun);
    // Behind these copies: the next kernel's come in front of what is asked for later.
    if (Config::kDecode && is_early) ptx::launch_dependents();
    const JobRows& rows = kFixedSplits ? shared_rows() : job;

    Warp warp;
    warp.clear();
    const float factor = score_factor(params_);
    const uint32_t q = ptx::shared_address(shared_) +
                       static_cast<uint32_t>(warp_row<Config>(threadIdx.x) * kHeadDimQk * 2) +
                       Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kHeadDimQk * kBytes) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(warp_key() * kHeadDimV * kBytes) + Warp::value_lane();
    const bool has_rows = !kMayHaveFewRows || warp_row<Config>(threadIdx.x) < rows.num_rows;
    int i = 0;
    const int num_splits = kFixedSplits ? part.count : 1;
    for (int split = 0; split < num_splits; ++split) {
      const int split_end = part_begin + (split + 1) * unit_keys;
      const int end = kFixedSplits ? min(num_stages, (split_end - first_position) / kStageKeys) : num_stages;
      for (; i < end; ++i) {
        stages_.wait(i);
        if (i == 0) warp.hold_queries(q);
        stages_.refill(i);
        if (!has_rows) {
          stages_.wait_for_values(i);
          stages_.publish_next(i);
          continue;
        }
#pragma unroll 1
        for (int t = 0; t < kTilesPerStage; ++t) {
          const int first_key = stages_.first_position(i) + t * kKeys;
          if (kTilesPerStage > 1 && first_key >= part_end) break;
          const uint32_t k = stages_.k(i) + in_k + static_cast<uint32_t>(t * kKeys * kHeadDimQk * kBytes);
          weigh_keys(rows, warp, q, k, factor, i, first_key, i == 0 && t == 0);
          if (t == 0) stages_.publish_next(i);
          warp.multiply_pv(stages_.v(i) + in_v + static_cast<uint32_t>(t * kKeys * kHeadDimV * kBytes));
        }
      }
      warp.finish_sums();
      const bool last = split + 1 == num_splits;
      if constexpr (kFixedSplits) {
        const SplitBank<kHeadDimV, Config::kRowBlocks, kThreads> bank(params_.plan.split_bank);
        const bool banks = has_rows && part.slot < 0;
        if (banks && split > 0) bank.add_to(warp, factor);
        if (banks && !last) bank.put(warp);
      }
      if (last) ptx::cp_async_wait_group<0>();
      if (part.slot >= 0 || last)
        Results(params_, rows, shared_ + kQueryBytes)
            .write(warp, factor, part.slot < 0 ? -1 : part.slot + split);
      if (!last) warp.clear();
    }
  }

  // Scores of the tile of keys from `first_key` on, in stage i, become weights. `first`: of the job.
  __device__ void weigh_keys(const JobRows& rows, Warp& warp, uint32_t q, uint32_t k, float factor, int i,
                             int first_key, bool first) {
    if constexpr (Config::kWeighsAtOnce && !kFixedSplits) {
      bool raises = first;
      uint32_t rows_to_raise = ~0u;
      while (true) {
        warp.multiply_qk(q, k);
        finish_scores(rows, warp, first_key);
        if (raises) warp.raise_largest(factor, rows_to_raise);
        if (warp.weigh(factor, raises, rows_to_raise)) return;
        raises = true;
      }
    } else {
      warp.multiply_qk(q, k);
      stages_.wait_for_values(i);
      finish_scores(rows, warp, first_key);
      warp.softmax(factor);
    }
  }

  // What scores are besides products.
  __device__ void finish_scores(const JobRows& rows, Warp& warp, int first_key) {
    if constexpr (kFp8) unscale_scores(warp, row_scales() + warp_row<Config>(threadIdx.x));
    if (params_.logit_cap > 0.0f) cap_scores(params_, warp);
    const KeyRange full = full_keys();
    if (first_key < full.begin || first_key + kKeys > full.end)
      hide_scores(params_, rows, warp, warp_row<Config>, first_key + warp_key());
  }

  __device__ static int warp_key() {
    return static_cast<int>(threadIdx.x) / 32 % Config::kWarpsN * kKeysPerWarp;
  }

  // Narrows the tile's keys to those of this layer, and finds those that every row of the tile sees.
  __device__ void find_ranges(const JobRows& rows, RowTile& tile) {
    const BatchParams& batch = params_.batch;
    const int j_first = rows.first_query, j_last = rows.at(params_, rows.num_rows - 1).query;
    if (batch.window_left >= 0 || batch.chunk > 0)
      tile.kv_begin = max(tile.kv_begin, key_range(batch, rows.span, j_first, j_last).begin);
    KeyRange full{0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      full = {first_visible(batch, position_of(batch, rows.span, j_last)),
              min(position_of(batch, rows.span, j_first) + 1, rows.span.seqlen_kv)};
    if (threadIdx.x == 0) {
      full_keys() = full;
      if (kFixedSplits) shared_rows() = rows;
    }
  }
  // In shared memory, where they take no registers from the products.
  __device__ JobRows& shared_rows() const { return *reinterpret_cast<JobRows*>(shared_ + kJobRowsAt); }
  __device__ KeyRange& full_keys() const { return *reinterpret_cast<KeyRange*>(shared_ + kFullKeysAt); }

  __device__ float* row_scales() const { return reinterpret_cast<float*>(shared_ + kRowScalesAt); }

  const AttentionParams& params_;
  char* shared_;
  Stages stages_;
};

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits, bool kPlans>
__global__ void __launch_bounds__(TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kThreads,
                                  TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kCtasPerSm)
    attention_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits, kPlans>(params, shared).run();
}

}  // namespace attend::kernels::cuda::sm80
