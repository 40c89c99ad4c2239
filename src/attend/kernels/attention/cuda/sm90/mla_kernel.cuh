// Absorbed MLA with TMA and wgmma: a work tile of 64 rows of one request (query heads packed with query
// tokens) against KV tiles of 64 latent rows, which are the keys and, in their first 512 columns, the values.
//
//   warps 0, 1     load the left and the right half of the columns of KV tiles, by TMA, or by cp.async where
//                  pages are small or a tile is cut
//   warps 2, 3     say what the work tiles are, and load queries
//   warpgroups 1,2 math: the first takes the softmax of even KV tiles, the second that of odd ones; both
//                  multiply P of every tile with their half of the columns of the values
//   registers      72 a thread of the producers, 216 of the math warpgroups: accumulators 128, scores 32, P
//   16 shared memory  226 KiB: queries 72, two stages of 72, P 8; one CTA an SM a KV tile      72 KiB from
//   L2; QK 1152 and PV 1024 cycles of the tensor cores, softmax about 500 of one
//                  warpgroup. On an H200 a tile comes from memory in 3700 cycles: with up to 64 rows a
//                  request memory is the bound; 128 heads are two CTAs that read the same tiles at the same
//                  time, and both bounds meet
//
// The order of a pair of KV tiles, of which P0 is the first warpgroup's and P1 the second's:
//   first:  softmax 0, P0 V0 left, take P1, P1 V1 left, QK 2
//   second: take P0, P0 V0 right, softmax 1, P1 V1 right, QK 3
// so that a softmax runs beside the products of the other, and a stage's halves are free as soon as each
// warpgroup has read its own. Row maxima are replaced only when another score exceeds them by a factor of 2^8
// in weight, so that results are seldom rescaled, and only the running max crosses between the warpgroups.
#pragma once

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_jobs.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_load.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_results.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"

namespace attend::kernels::cuda::sm90 {

// One math warpgroup's part.
template <class T, int kWarpgroup>
class MlaMath {
  using Rows = MlaRowState<T>;
  using Weights = uint32_t[Rows::kSteps][4];
  static constexpr int kSumsBarrier = 1;  // named, of the math warpgroups

 public:
  __device__ MlaMath(const MlaParams& params, const MlaShared& shared)
      : params_(params), shared_(shared), factor_(sm80::score_factor(params.attention)) {}

  __device__ void run() {
    // Registers are short: places and parities of rings follow from counts.
#pragma unroll 1
    for (int num_jobs = 0;; ++num_jobs) {
      const int slot = num_jobs % MlaTile::kJobSlots;
      ptx::wait_for_phase(shared_.job_told(slot), num_jobs / MlaTile::kJobSlots & 1);
      const MlaJob& job = shared_.job(slot);
      if (job.num_tiles < 0) return;
      ptx::wait_for_phase(shared_.queries_full(), num_jobs & 1);
      ptx::publish_to_async();
      attend(job, num_jobs & 1);
      arrive_as_warp(shared_.job_done(slot));
    }
  }

 private:
  __device__ __forceinline__ void attend(const MlaJob& job, int job_parity) {
    const int num_tiles = job.num_tiles;
    Rows rows;
    rows.clear();
    if constexpr (kWarpgroup == 0) {
      if (num_tiles > 0) {
        multiply_keys(rows, job, 0);
        int tile = 0;
#pragma unroll 1
        for (; tile + 2 < num_tiles; tile += 2) {
          wait_for_scores(rows);
          own_tile<false>(rows, job, tile);
          release_last(rows, tile);
          other_tile(rows, job, tile + 1);
          release_last(rows, tile + 1);
          multiply_keys(rows, job, tile + 2);
        }
        wait_for_scores(rows);
        release_queries();
        own_tile<false>(rows, job, tile);
        release_last(rows, tile);
        if (tile + 1 < num_tiles) {
          other_tile(rows, job, tile + 1);
          release_last(rows, tile + 1);
        }
      } else {
        release_queries();
      }
    } else {
      if (num_tiles > 1) {
        multiply_keys(rows, job, 1);
        int tile = 0;
#pragma unroll 1
        for (; tile + 3 < num_tiles; tile += 2) {
          wait_for_scores(rows);
          other_tile(rows, job, tile);
          own_tile<true>(rows, job, tile + 1);
          release_last(rows, tile + 1);
          multiply_keys(rows, job, tile + 3);
        }
        wait_for_scores(rows);
        release_queries();
        other_tile(rows, job, tile);
        own_tile<true>(rows, job, tile + 1);
        release_last(rows, tile + 1);
        if (tile + 2 < num_tiles) {
          other_tile(rows, job, tile + 2);
          release_last(rows, tile + 2);
        }
      } else {
        release_queries();
        if (num_tiles > 0) {
          other_tile(rows, job, 0);
          release_last(rows, 0);
        }
      }
    }
    num_tiles_before_ += num_tiles;
    finish(rows, job, job_parity);
  }

  // Starts the scores of a tile, third by third as they come.
  __device__ __forceinline__ void multiply_keys(Rows& rows, const MlaJob& job, int tile) {
    const int stage = stage_of(tile);
    const uint32_t parity = parity_of(tile);
    if (copied_by_threads(job, tile)) {
      for (int third = 0; third < MlaTile::kThirds; ++third)
        ptx::wait_for_phase(shared_.full(stage, third), parity);
      ptx::publish_to_async();
    }
    const uint64_t q = ptx::matrix_descriptor(Rows::lane_0(shared_.queries()));
    const uint64_t k = ptx::matrix_descriptor(Rows::lane_0(shared_.stage(stage)));
#pragma unroll
    for (int third = 0; third < MlaTile::kThirds; ++third) {
      ptx::wait_for_phase(shared_.full(stage, third), parity);
      ptx::begin_products();
#pragma unroll
      for (int chunk = third * kMlaBoxChunks; chunk < (third + 1) * kMlaBoxChunks; ++chunk)
        rows.multiply_keys(q, k, chunk, chunk > 0);
    }
    ptx::commit_products();
  }
  __device__ __forceinline__ static bool copied_by_threads(const MlaJob& job, int tile) {
    return tile < job.boxes.begin || tile >= job.boxes.end;
  }

  __device__ __forceinline__ static void wait_for_scores(Rows& rows) {
    ptx::wait_products<0>();
    ptx::use_after_wait(rows.scores);
  }

  // Scores of this warpgroup's own tile, which have come, become P, which both warpgroups multiply with the
  // values. `kBusy`: the product of the tile before is under way.
  template <bool kBusy>
  __device__ __forceinline__ void own_tile(Rows& rows, const MlaJob& job, int tile) {
    if (params_.attention.logit_cap > 0.0f) {
      const sm80::ScoreCap cap(params_.attention);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (tile < job.full.begin || tile >= job.full.end)
      rows.hide_scores(params_.attention,
                       sm80::JobRows(params_.attention, job.tile, job.head, params_.attention.plan.tile_rows),
                       first_row(), job.first_key + tile * kMlaKeys);
    rows.softmax(factor_);
    Weights weights;
    rows.pack(weights);
    rows.publish(shared_, weights, thread_, first_row());
    arrive_as_warp(shared_.weights_full(kWarpgroup, thread_ / 32));
    if constexpr (kBusy) release_last(rows, tile - 1);
    multiply_values(rows, weights, tile);
  }

  // The same with P of the other warpgroup.
  __device__ __forceinline__ void other_tile(Rows& rows, const MlaJob& job, int tile) {
    ptx::wait_for_phase(shared_.weights_full(1 - kWarpgroup, thread_ / 32), weights_parity_);
    weights_parity_ ^= 1;
    // The other warpgroup has waited for the tile.
    if (copied_by_threads(job, tile)) ptx::publish_to_async();
    Weights weights;
    rows.receive(shared_, weights, thread_, first_row(), factor_);
    multiply_values(rows, weights, tile);
  }

  __device__ __forceinline__ void multiply_values(Rows& rows, const Weights& weights, int tile) {
    rows.rescale_results();
    ptx::begin_products();
    rows.multiply_values(
        weights, shared_.stage(stage_of(tile)) + kWarpgroup * MlaTile::kChunksOfHalf * MlaTile::kChunkBytes);
  }

  // Waits for the product with the values of a tile; its columns of the stage are free then.
  __device__ __forceinline__ void release_last(Rows& rows, int tile) {
    ptx::wait_products<0>();
    ptx::use_after_wait(rows.out);
    __syncwarp();
    if (thread_ % 32 == 0) {
      ptx::arrive(shared_.empty(stage_of(tile), kWarpgroup));
      ptx::arrive(shared_.empty(stage_of(tile), kWarpgroup + 1));
    }
  }
  __device__ __forceinline__ void release_queries() { arrive_as_warp(shared_.queries_empty()); }

  // The sums of both warpgroups' tiles; then the results.
  __device__ __forceinline__ void finish(Rows& rows, const MlaJob& job, int job_parity) {
    const int row = first_row();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.sum[half] = sm80::quad_sum(rows.sum[half]);
      if (thread_ % 4 == 0) shared_.sums(job_parity, kWarpgroup)[row + 8 * half] = rows.sum[half];
    }
    ptx::wait_named(kSumsBarrier, 32 * MlaTile::kMathWarps);
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The same order in both warpgroups.
      const float other = shared_.sums(job_parity, 1 - kWarpgroup)[row + 8 * half];
      sum[half] = kWarpgroup == 0 ? rows.sum[half] + other : other + rows.sum[half];
    }
    MlaResults<T>(params_.attention, job, kWarpgroup, row).write(rows, sum, factor_);
  }

  __device__ __forceinline__ int stage_of(int tile) const {
    return (num_tiles_before_ + tile) % MlaTile::kStages;
  }
  __device__ __forceinline__ uint32_t parity_of(int tile) const {
    return static_cast<uint32_t>((num_tiles_before_ + tile) / MlaTile::kStages & 1);
  }
  __device__ __forceinline__ int first_row() const { return thread_ / 32 * 16 + thread_ % 32 / 4; }

  const MlaParams& params_;
  const MlaShared& shared_;
  const float factor_;
  const int thread_ = static_cast<int>(threadIdx.x) % 128;  // of the warpgroup
  int num_tiles_before_ = 0;
  uint32_t weights_parity_ = 0;
};

// By all threads of the CTA, each when it comes to it.
__device__ inline void pad(const AttentionParams& params) {
  write_padding(params, params.batch.cu_seqlen_q[params.batch.num_reqs]);
}

template <class T, bool kPlans>
__global__ void __launch_bounds__(MlaTile::kThreads, 1) mla_kernel(const __grid_constant__ MlaParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  using Plan = sm80::CtaPlan<MlaTile::kThreads, kPlans>;
  const AttentionParams& attention = params.attention;
  const MlaShared shared(memory);
  if (threadIdx.x == 0) {
    shared.init_barriers();
    if (params.box_rows > 0) ptx::prefetch_map(&params.latent);
    if (params.boxes_queries) {
      ptx::prefetch_map(&params.q);
      ptx::prefetch_map(&params.q_rope);
    }
  }
  const bool is_early = attention.old_keys_settled;
  if (!is_early) ptx::wait_for_previous_kernel();
  const Plan plan(attention);
  // A whole plan may have fewer row tiles than there are CTAs.
  if (attention.plan.streamed) {
    const sm80::PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    if (threadIdx.x == 0) shared.walk() = start;
  } else if (threadIdx.x == 0) {
    shared.walk().header = *attention.plan.header;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < MlaTile::kProducerWarps) {
    ptx::give_registers<MlaTile::kProducerRegisters>();
    if (warp < MlaTile::kLoadWarps)
      MlaLoad(params, shared, warp).run(is_early);
    else
      MlaJobs<Plan>(params, shared, warp - MlaTile::kLoadWarps).run(plan);
    ptx::wait_for_previous_kernel();
    pad(attention);
  } else {
    ptx::take_registers<MlaTile::kMathRegisters>();
    // Before results are written.
    ptx::wait_for_previous_kernel();
    if (warp < MlaTile::kProducerWarps + 4)
      MlaMath<T, 0>(params, shared).run();
    else
      MlaMath<T, 1>(params, shared).run();
    pad(attention);
  }
  ptx::allow_next_kernel();
}

}  // namespace attend::kernels::cuda::sm90
