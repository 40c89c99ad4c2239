// Attention of many rows on sm_90a: query rows of one request and KV head (GQA heads packed with query
// tokens) against tiles of keys. Two warps (or four, of fp8) bring keys and values, two jobs and queries; two
// warpgroups of 64 rows each multiply in turns, so that the softmax of one runs beside the products of the
// other, and each asks for the scores of its next tile before the softmax of the present one has ended.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_conversions.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_copies.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_jobs.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_results.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill_rows.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"

namespace attend::kernels::cuda::sm90 {

// One warpgroup's part.
template <class T, class Tile>
class PrefillConsumer {
  using Shared = PrefillShared<Tile>;
  using Rows = PrefillRows<T, Tile>;
  // Named barriers: the first of two whose turn it is to multiply, then those of a warpgroup alone.
  static constexpr int kTurnBarrier = 1, kWarpgroupBarrier = kTurnBarrier + Tile::kConsumers;

 public:
  // `warpgroup`: of the consumers.
  __device__ PrefillConsumer(const PrefillParams& params, const Shared& shared, int warpgroup)
      : params_(params.attention),
        shared_(shared),
        warpgroup_(warpgroup),
        rows_by_threads_(params.box_rows == 0 && Tile::kRingWarps == 1),
        factor_(sm80::score_factor(params.attention)) {}

  __device__ void run() {
    if (warpgroup_ == 1) pass_turn();
    for (RingPlace place;; place.advance(Tile::kJobSlots)) {
      ptx::mbarrier_wait(shared_.job_told(place.slot), place.parity);
      const PrefillJob& job = shared_.job(place.slot);
      if (job.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_full(queries_.slot, warpgroup_), queries_.parity);
      ptx::fence_proxy_async();
      attend(job);
      release(shared_.job_done(place.slot));
    }
  }

 private:
  __device__ __forceinline__ void attend(const PrefillJob& job) {
    const uint32_t q = shared_.queries(queries_.slot) + warpgroup_ * Tile::kConsumerRows * kChunkRowBytes;
    const int num_tiles = job.num_tiles;
    const KeyRange full = job.full;
    int first_key = job.first_key;
    // Boxes of values that begin before the first key, or end behind the last, are copied by threads.
    const bool begins_inside = first_key < job.tile.kv_begin;
    Rows rows;
    rows.clear();
    if (num_tiles == 0) {
      release_queries();
    } else {
      wait_for_keys();
      ptx::wgmma_fence();
      rows.multiply_keys(q, shared_.keys(keys_.slot));
      ptx::wgmma_wait_group<0>();
      weigh(rows, job, first_key, full);
      rows.take_weights();
      keys_or_end(num_tiles > 1);
#pragma unroll 1
      for (int i = 1; i < num_tiles; ++i) {
        first_key += Tile::kKeys;
        wait_for_turn();
        ptx::wgmma_fence();
        rows.multiply_keys(q, shared_.keys(keys_.slot));
        wait_for_values(i == 1 && begins_inside);
        rows.multiply_values(shared_.values(values_.slot));
        pass_turn();
        ptx::wgmma_wait_group<1>();
        weigh(rows, job, first_key, full);
        // The loop in this keeps the compiler from moving the next wait before the softmax.
        keys_or_end(i + 1 < num_tiles);
        ptx::wgmma_wait_group<0>();
        ptx::fence_operand(rows.out);
        release_values();
        rows.take_weights();
      }
      wait_for_values(true);
      ptx::wgmma_fence();
      rows.multiply_values(shared_.values(values_.slot), (job.tile.kv_end - first_key + 15) / 16);
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(rows.out);
      release_values();
    }
    rows.finish_sums();
    // Else the compiler takes warps of a warpgroup for diverged and has every product wait for the one
    // before.
    ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128);
    PrefillResults<T, Tile>(params_, rows_of(job), warpgroup_).write(rows, factor_);
  }

  // Scores that have come become weights; the tile of keys is free.
  __device__ __forceinline__ void weigh(Rows& rows, const PrefillJob& job, int first_key,
                                        const KeyRange& full) {
    ptx::fence_operand(rows.scores);
    release(shared_.keys_empty(keys_.slot));
    keys_.advance(Tile::kStages);
    if (params_.logit_cap > 0.0f) {
      const sm80::ScoreCap cap(params_);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (first_key < full.begin || first_key + Tile::kKeys > full.end)
      rows.hide_scores(params_, rows_of(job), prefill_row<Tile>(warpgroup_), first_key);
    rows.softmax(factor_);
  }

  // Made anew where it is wanted, since registers are short.
  __device__ __forceinline__ sm80::JobRows rows_of(const PrefillJob& job) const {
    return {params_, job.tile, job.head, Tile::kRows};
  }

  __device__ __forceinline__ void wait_for_keys() const {
    ptx::mbarrier_wait(shared_.keys_full(keys_.slot), keys_.parity);
    if (rows_by_threads_) ptx::fence_proxy_async();
  }
  // Waits for the next keys; without any, the queries have been read.
  __device__ __forceinline__ void keys_or_end(bool more) {
    if (more)
      wait_for_keys();
    else
      release_queries();
  }
  // `by_threads`: rows of this tile may be.
  __device__ __forceinline__ void wait_for_values(bool by_threads) const {
    ptx::mbarrier_wait(shared_.values_full(values_.slot), values_.parity);
    if (rows_by_threads_ || by_threads) ptx::fence_proxy_async();
  }
  __device__ __forceinline__ void release_values() {
    release(shared_.values_empty(values_.slot));
    values_.advance(Tile::kStages);
  }
  __device__ __forceinline__ void release_queries() {
    release(shared_.queries_empty(queries_.slot, warpgroup_));
    queries_.advance(Tile::kQuerySlots);
  }
  // A warp's arrival.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  __device__ __forceinline__ void wait_for_turn() const {
    ptx::barrier_sync(kTurnBarrier + warpgroup_, 128 * Tile::kConsumers);
  }
  __device__ __forceinline__ void pass_turn() const {
    ptx::barrier_arrive(kTurnBarrier + (warpgroup_ ^ 1), 128 * Tile::kConsumers);
  }

  const AttentionParams& params_;
  const Shared& shared_;
  const int warpgroup_;
  const bool rows_by_threads_;
  const float factor_;
  RingPlace queries_, keys_, values_;
};

// What brings keys, or values.
template <class T, Element kKv, class Tile, bool kValues>
using PrefillRing =
    std::conditional_t<is_fp8(kKv), PrefillConversions<T, kKv, Tile, kValues>, PrefillCopies<Tile, kValues>>;

template <class T, Element kKv, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const PrefillShared<Tile> shared(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  ptx::griddepcontrol_wait();
  write_padding(params.attention, params.attention.plan.header->num_tokens);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Tile::kBringingWarps) {
    ptx::setmaxnreg_dec<Tile::kBringingRegisters>();
    if (warp < Tile::kRingWarps)
      PrefillRing<T, kKv, Tile, false>(params, shared, warp).run();
    else if (warp < Tile::kCopyWarps)
      PrefillRing<T, kKv, Tile, true>(params, shared, warp - Tile::kRingWarps).run();
    else if (warp < Tile::kCopyWarps + Tile::kConsumers)
      PrefillJobs<Tile>(params, shared, warp - Tile::kCopyWarps).run();
  } else {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile>(params, shared, warp / 4 - Tile::kBringingWarps / 4).run();
  }
}

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV>
void launch_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  using Tile = PrefillTile<kHeadDimQk, kHeadDimV, is_fp8(kKv)>;
  constexpr int kSharedBytes = PrefillShared<Tile>::kBytes;
  constexpr auto kKernel = prefill_kernel<T, kKv, Tile>;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                  kSharedBytes, stream, params, "attention");
}

}  // namespace attend::kernels::cuda::sm90
