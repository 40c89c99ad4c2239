// Attention of many rows on sm_90a with queries, keys and values of e4m3, multiplied as they are:
// prefill.cuh's schedule, two consumer warpgroups that take turns at the tensor cores. wgmma of 8 bits wants
// both operands K-major, so a warpgroup of its own transposes values in shared memory, and their keys come to
// lie in the order in which P lies in registers (prefill_e4m3_layout.h derives it).
//
//   tile        128 rows x 128 keys; head dims 64/64, 128/128, 192/128
//   warps       2 consumer warpgroups of 64 rows each: QK^T by wgmma m64n(keys)k32, PV by
//               m64n(head_dim_v)k32, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               where pages have 8 rows or more, else by cp.async, and a warp for each consumer's queries,
//               one of which schedules. A warpgroup that transposes V, each warp 32 keys
//   registers   200 a consumer thread, 64 a producer thread, 48 one that transposes (setmaxnreg); launched
//               with 128
//   shared      144 KB at head dims 64, 160 KB at 128, 208 KB at 192/128: two work tiles with their queries
//               (one at 192), three stages of K and of V, two of V^T. Rows lie 128 bytes apart, also those of
//               64
//   bytes       of a KV tile: 16 KB at head dims 64, 32 KB at 128, 40 KB at 192/128
//   bound       the softmax's exponentials, as long as the products: 1024 cycles of 128 x 128 at head dim 128
//
// Precision. P is rounded to e4m3: 2^-4 of itself while it is normal. So that small ones are, P is 2^8 times
// as large, and relative to a row max that is stale by at most 2^0.75: it is below 448 / 1.04, the largest of
// e4m3, normal from 2^-14 of a row's largest on, zero below 2^-18. The row sum is float32's, which rounding
// leaves right on average. Tensor cores add products of e4m3 with some 14 bits, cut off: a sum over n keys
// loses at most n / 32 2^-14 of its largest part, some 2^-10 where signs differ, and rounding P loses 2^-4 /
// sqrt(n) beside it. FlashAttention-3 does the same.
#pragma once

#include <cuda_fp8.h>

#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_epilogue.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_tile.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_transposer.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"

namespace attend::kernels::cuda::sm90 {

// Consumer: one warpgroup, all work tiles. As PrefillConsumer, but for values that come transposed.
template <class Tile>
class PrefillE4m3Consumer {
  using Shared = PrefillE4m3Shared<Tile>;
  using Rows = PrefillE4m3Rows<Tile>;
  // Named barriers: two that order the warpgroups' wgmma (ping-pong), then one of each warpgroup alone.
  static constexpr int kSchedulerBarrier = 1, kWarpgroupBarrier = kSchedulerBarrier + Tile::kConsumers;

 public:
  // `warpgroup`: of the consumers.
  __device__ PrefillE4m3Consumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : params_(params.attention),
        shared_(shared),
        warpgroup_(warpgroup),
        cp_async_rows_(params.box_rows == 0),
        cp_async_queries_(params.box_tokens == 0) {}

  __device__ void run() {
    if (warpgroup_ == 1) scheduler_barrier_arrive();
    for (PipelineState state;; state.advance(Tile::kWorkTileStages)) {
      ptx::mbarrier_wait(shared_.work_tile_full(state.stage), state.parity);
      const PrefillWorkTile& work_tile = shared_.work_tile(state.stage);
      if (work_tile.num_tiles < 0) return;
      const HeadDescales descales = descales_of(params_, work_tile.tile.request, work_tile.head);
      ptx::mbarrier_wait(shared_.queries_full(queries_.stage, warpgroup_), queries_.parity);
      if (cp_async_queries_) ptx::fence_proxy_async();
      attend(work_tile, descales);
      release(shared_.work_tile_empty(state.stage));
    }
  }

 private:
  // scale log2(e), for exp2; capped scores have their scale already.
  __device__ __forceinline__ float softmax_scale_log2_of(const HeadDescales& descales) const {
    return cuda::softmax_scale_log2_of(params_) * (params_.logit_cap > 0.0f ? 1.0f : descales.scores);
  }

  __device__ __forceinline__ void attend(const PrefillWorkTile& work_tile, const HeadDescales& descales) {
    const uint32_t q = shared_.queries(queries_.stage) + warpgroup_ * Tile::kConsumerRows * kPanelRowBytes;
    const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
    const KeyRange full{ptx::warp_uniform(work_tile.full.begin), ptx::warp_uniform(work_tile.full.end)};
    int first_key = ptx::warp_uniform(work_tile.first_key);
    Rows rows;
    rows.clear();
    if (num_tiles == 0) {
      release_queries();
    } else {
      wait_for_keys();
      ptx::wgmma_fence();
      rows.multiply_keys(q, shared_.keys(keys_.stage));
      ptx::wgmma_wait_group<0>();
      score<false>(rows, work_tile, descales, first_key);
      rows.make_p(softmax_scale_log2_of(descales), [] {});
      wait_for_keys_or_end(num_tiles > 1);
      // As PrefillConsumer::add_tiles().
      for (int i = 1; i < num_tiles;) {
#pragma unroll 1
        for (; i < num_tiles && is_plain(full, first_key + Tile::kKeys); ++i)
          add_tile<true>(rows, work_tile, descales, q, first_key += Tile::kKeys, i, num_tiles);
#pragma unroll 1
        for (; i < num_tiles && !is_plain(full, first_key + Tile::kKeys); ++i)
          add_tile<false>(rows, work_tile, descales, q, first_key += Tile::kKeys, i, num_tiles);
      }
      wait_for_values();
      ptx::wgmma_fence();
      rows.multiply_values(shared_.transposed(values_.stage));
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(rows.out);
      release_values();
    }
    rows.finish_sums();
    // Else the compiler takes the warps of a warpgroup for diverged and serialises every wgmma.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    PrefillE4m3Epilogue<Tile>(params_, rows_of(work_tile), warpgroup_)
        .write(rows, softmax_scale_log2_of(descales), descales, work_tile.partial_idx);
  }

  // QK^T of KV tile `i` of num_tiles, which begins at `first_key`, and P V of the one before.
  template <bool kPlain>
  __device__ __forceinline__ void add_tile(Rows& rows, const PrefillWorkTile& work_tile,
                                           const HeadDescales& descales, uint32_t q, int first_key, int i,
                                           int num_tiles) {
    const bool passes_late = num_tiles > Tile::kMaxTilesOfEarlyTurns;
    scheduler_barrier_sync();
    ptx::wgmma_fence();
    rows.multiply_keys(q, shared_.keys(keys_.stage));
    wait_for_values();
    rows.multiply_values(shared_.transposed(values_.stage));
    if (!passes_late) scheduler_barrier_arrive();
    ptx::wgmma_wait_group<1>();
    score<kPlain>(rows, work_tile, descales, first_key);
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    release_values();
    rows.make_p(softmax_scale_log2_of(descales), [&] { pass_turn_here_if(passes_late); });
    wait_for_keys_or_end(i + 1 < num_tiles);
  }

  // Of a KV tile: without cap and mask.
  __device__ __forceinline__ bool is_plain(const KeyRange& full, int first_key) const {
    return params_.logit_cap <= 0.0f && first_key >= full.begin && first_key + Tile::kKeys <= full.end;
  }

  // The stage of K is free; cap, mask and row max.
  template <bool kPlain>
  __device__ __forceinline__ void score(Rows& rows, const PrefillWorkTile& work_tile,
                                        const HeadDescales& descales, int first_key) {
    ptx::fence_operand(rows.scores);
    release(shared_.keys_empty(keys_.stage));
    keys_.advance(Tile::kStages);
    if (!kPlain && params_.logit_cap > 0.0f) {
      ScoreCap cap(params_);
      cap.to_exponent *= descales.scores;
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (!kPlain && (first_key < work_tile.full.begin || first_key + Tile::kKeys > work_tile.full.end))
      rows.mask_scores(Rows::visible_scores(params_, rows_of(work_tile), prefill_row<Tile>(warpgroup_),
                                            first_key, {work_tile.tile.kv_begin, work_tile.tile.kv_end}));
    rows.raise_max(softmax_scale_log2_of(descales));
  }

  // Computed again where it is wanted, since registers are short.
  __device__ __forceinline__ WorkTileRows rows_of(const PrefillWorkTile& work_tile) const {
    return {params_, work_tile.tile, work_tile.head, Tile::kRows};
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.stage), keys_.parity);
    if (cp_async_rows_) ptx::fence_proxy_async();
  }
  // Waits for the next K; without any, the queries are free.
  __device__ __forceinline__ void wait_for_keys_or_end(bool more) {
    if (more)
      wait_for_keys();
    else
      release_queries();
  }
  __device__ __forceinline__ void wait_for_values() const {
    ptx::mbarrier_wait(shared_.transposed_full(values_.stage), values_.parity);
  }
  __device__ __forceinline__ void release_values() {
    release(shared_.transposed_empty(values_.stage));
    values_.advance(Tile::kTransposedStages);
  }
  __device__ __forceinline__ void release_queries() {
    release(shared_.queries_empty(queries_.stage, warpgroup_));
    queries_.advance(Tile::kQueryStages);
  }
  // One arrival a warp.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  // In a loop that ends at once, which the compiler does not know: it moves neither exponentials nor the
  // barrier across one.
  __device__ __forceinline__ void pass_turn_here_if(bool passes) const {
    int again = params_.num_kv_heads >> 31;
    asm volatile("" : "+r"(again));
    do {
      if (passes) scheduler_barrier_arrive();
    } while (again != 0);
  }
  __device__ __forceinline__ void scheduler_barrier_sync() const {
    ptx::barrier_sync(kSchedulerBarrier + warpgroup_, 128 * Tile::kConsumers);
  }
  __device__ __forceinline__ void scheduler_barrier_arrive() const {
    ptx::barrier_arrive(kSchedulerBarrier + (warpgroup_ ^ 1), 128 * Tile::kConsumers);
  }

  const AttentionParams& params_;
  const Shared& shared_;
  const int warpgroup_;
  const bool cp_async_rows_, cp_async_queries_;
  PipelineState queries_, keys_, values_;  // values: transposed
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_e4m3_kernel(const __grid_constant__ PrefillParams params) {
  using Shared = PrefillE4m3Shared<Tile>;
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  ptx::griddepcontrol_wait();
  write_padding(params.attention, num_planned_tokens<Tile>(params.attention));
  __syncthreads();
  const int warp = ptx::warp_uniform(static_cast<int>(threadIdx.x) / 32);
  if (warp < Tile::kProducerWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp == 0)
      PrefillProducer<Tile, Shared, false>(params, shared).run();
    else if (warp == 1)
      PrefillProducer<Tile, Shared, true>(params, shared).run();
    else
      PrefillScheduler<Tile, Shared>(params, shared, warp - Tile::kLoadWarps, 2).run();
  } else if (warp < Tile::kFirstConsumerWarp) {
    ptx::setmaxnreg_dec<Tile::kTransposeRegisters>();
    PrefillTransposer<Tile>(shared, warp - Tile::kProducerWarps).run();
  } else {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillE4m3Consumer<Tile>(params, shared, (warp - Tile::kFirstConsumerWarp) / 4).run();
  }
}

template <int kHeadDimQk, int kHeadDimV>
void launch_prefill_e4m3(const PrefillParams& params, int num_ctas, void* stream) {
  using Tile = PrefillE4m3Tile<kHeadDimQk, kHeadDimV>;
  constexpr int kSharedBytes = PrefillE4m3Shared<Tile>::kBytes;
  constexpr auto kKernel = prefill_e4m3_kernel<Tile>;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                  kSharedBytes, stream, params, "attention");
}

}  // namespace attend::kernels::cuda::sm90
