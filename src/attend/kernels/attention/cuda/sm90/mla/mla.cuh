// Absorbed MLA with TMA and wgmma: a work tile of 64 rows of one request (query heads packed with query
// tokens) against KV tiles of 64 latent rows, which are the keys and, in their first 512 columns, the values.
//
//   tile        64 rows x 64 keys; 576 columns of QK^T, 512 of PV
//   warps       2 producers of KV tiles, with TMA, or with cp.async if pages are small; 2 producers of
//               queries, one of which schedules (for fp8 rows: 4 that do everything); 2 consumer warpgroups:
//               one computes the softmax of even KV tiles, the other of odd ones, and both multiply P of
//               every tile with their half of V
//   registers   224 per consumer thread (accumulators 128, scores 32, P 16), 56 per producer thread
//               (setmaxnreg)
//   shared      226 KB: queries 72, two stages of 72, P 8
//   bytes       per KV tile: 72 KB; from memory once for all heads, since CTAs of other heads run
//               concurrently
//   bound       memory up to 64 rows per request; at 128 heads memory and tensor cores (2176 cycles per tile)
//
// Order of a pair of KV tiles, with P0 of the first warpgroup and P1 of the second:
//   first       softmax 0, P0 V0 left, receive P1, P1 V1 left, QK 2
//   second      receive P0, P0 V0 right, softmax 1, P1 V1 right, QK 3
// The softmax of one warpgroup overlaps with the products of the other, and parts of a stage are released as
// soon as all multiplications of their columns are done. A row max is replaced only if a score exceeds it by
// more than 8 powers of two, so accumulators are rarely rescaled; it is passed between the warpgroups with P.
#pragma once

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan/cta_plan.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_kernel.h"
#include "attend/kernels/attention/cuda/sm90/mla/mla_producer.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"

namespace attend::kernels::cuda::sm90 {

// Work of a math warpgroup. `kFp8`: latent rows are provided by MlaConverter.
template <class T, bool kFp8, bool kPlain>
class MlaConsumer {
  using Rows = MlaRowState<T>;
  using Probabilities = uint32_t[Rows::kSteps][4];
  static constexpr int kSumsBarrier = 1;  // named barrier of the math warpgroups

 public:
  __device__ MlaConsumer(const MlaParams& params, const MlaShared& shared)
      : params_(params), shared_(shared), scale_log2_(get_softmax_scale_log2(params.attention)) {}

  __device__ void run() {
    // Registers are limited: stages and parities of pipelines are derived from counts.
#pragma unroll 1
    for (int num_work_tiles = 0;; ++num_work_tiles) {
      const int stage = num_work_tiles % MlaTile::kScheduleStages;
      ptx::mbarrier_wait(shared_.schedule_full(stage), num_work_tiles / MlaTile::kScheduleStages & 1);
      const MlaWorkTile& work_tile = shared_.work_tile(stage);
      if (work_tile.num_tiles < 0) return;
      ptx::mbarrier_wait(shared_.queries_full(), num_work_tiles & 1);
      ptx::fence_proxy_async();
      Rows rows;
      rows.clear();
      if (warpgroup() == 0)
        attend_even(rows, work_tile);
      else
        attend_odd(rows, work_tile);
      num_tiles_before_ += work_tile.num_tiles;
      // Shared code of both warpgroups.
      finish(rows, work_tile, num_work_tiles & 1);
      arrive_as_warp(shared_.schedule_empty(stage));
    }
  }

 private:
  // Computes the softmax of even KV tiles. No product is in flight between iterations; otherwise the compiler
  // would insert waits.
  __device__ __forceinline__ void attend_even(Rows& rows, const MlaWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles;
    if (num_tiles <= 0) release_queries();
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; tile += 2) {
      multiply_keys(rows, tile);
      wait_for_scores(rows, tile);
      if (tile + 2 >= num_tiles) release_queries();
      compute_own_tile<0>(rows, work_tile, tile);
      end_product<0>(rows, tile);
      if (tile + 1 < num_tiles) {
        compute_other_tile<0>(rows, work_tile, tile + 1);
        end_product<0>(rows, tile + 1);
      }
    }
  }
  // Computes the softmax of odd KV tiles.
  __device__ __forceinline__ void attend_odd(Rows& rows, const MlaWorkTile& work_tile) {
    const int num_tiles = work_tile.num_tiles;
    if (num_tiles <= 1) release_queries();
    int tile = 0;
#pragma unroll 1
    for (; tile + 1 < num_tiles; tile += 2) {
      multiply_keys(rows, tile + 1);
      wait_for_scores(rows, tile + 1);
      if (tile + 3 >= num_tiles) release_queries();
      compute_other_tile<1>(rows, work_tile, tile);
      compute_own_tile<1>(rows, work_tile, tile + 1);
      end_product<1>(rows, tile + 1);
    }
    if (tile < num_tiles) {
      compute_other_tile<1>(rows, work_tile, tile);
      end_product<1>(rows, tile);
    }
  }

  // Starts the scores of a tile part by part (third by third for converted rows) as they arrive.
  __device__ __forceinline__ void multiply_keys(Rows& rows, int tile) {
    const int stage = tile_stage(tile);
    const uint32_t parity = stage_parity(tile);
    if (uses_cp_async()) {
      for (int third = 0; third < MlaTile::kThirds; ++third)
        ptx::mbarrier_wait(shared_.full(stage, third), parity);
      ptx::fence_proxy_async();
    }
    const uint64_t q = ptx::smem_descriptor(Rows::lane_0(shared_.queries()));
    const uint64_t k = ptx::smem_descriptor(Rows::lane_0(shared_.stage(stage)));
#pragma unroll
    for (int i = 0; i < MlaTile::kParts; ++i) {
      const int first = kFp8 ? i * MlaTile::kPanelsPerThird : MlaTile::first_panel(i);
      const int num_panels = kFp8 ? MlaTile::kPanelsPerThird : MlaTile::num_panels(i);
      ptx::mbarrier_wait(shared_.full(stage, i), parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int n = 0; n < num_panels; ++n) rows.multiply_keys(q, k, first + n, i + n > 0);
    }
    ptx::wgmma_commit_group();
  }
  __device__ __forceinline__ bool uses_cp_async() const { return !kFp8 && !kPlain && params_.box_rows == 0; }

  // Waits for the scores; then the columns that only keys have are released.
  __device__ __forceinline__ void wait_for_scores(Rows& rows, int tile) {
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.scores);
    arrive_as_warp(shared_.empty(tile_stage(tile), MlaTile::kRopePart));
  }

  // Converts scores of this warpgroup's own tile, which are complete, to P, which both warpgroups multiply
  // with the values. In the second warpgroup the product of the previous tile is in flight.
  template <int kWarpgroup>
  __device__ __forceinline__ void compute_own_tile(Rows& rows, const MlaWorkTile& work_tile, int tile) {
    if (!kPlain && params_.attention.logit_cap > 0.0f) {
      const ScoreCap cap(params_.attention);
#pragma unroll
      for (float& score : rows.scores) score = cap(score);
    }
    if (tile < work_tile.full.begin || tile >= work_tile.full.end)
      rows.template mask<kPlain>(
          params_.attention,
          WorkTileRows(params_.attention, work_tile.tile, work_tile.head, params_.attention.plan.tile_rows),
          first_row(), work_tile.first_key + tile * kMlaKeys);
    rows.softmax(scale_log2_);
    Probabilities p;
    rows.pack(p);
    rows.publish(shared_, p, thread_, first_row());
    arrive_as_warp(shared_.p_full(kWarpgroup, thread_ / 32));
    if constexpr (kWarpgroup == 1) end_product<kWarpgroup>(rows, tile - 1);
    multiply_values<kWarpgroup>(rows, p, tile);
  }

  // The same with P of the other warpgroup.
  template <int kWarpgroup>
  __device__ __forceinline__ void compute_other_tile(Rows& rows, const MlaWorkTile& work_tile, int tile) {
    ptx::mbarrier_wait(shared_.p_full(1 - kWarpgroup, thread_ / 32), p_parity_);
    p_parity_ ^= 1;
    // The other warpgroup has waited for the tile.
    if (uses_cp_async()) ptx::fence_proxy_async();
    Probabilities p;
    rows.receive(shared_, p, thread_, first_row(), scale_log2_);
    multiply_values<kWarpgroup>(rows, p, tile);
  }

  template <int kWarpgroup>
  __device__ __forceinline__ void multiply_values(Rows& rows, const Probabilities& p, int tile) {
    rows.rescale_results();
    ptx::wgmma_fence();
    rows.multiply_values(
        p, shared_.stage(tile_stage(tile)) + kWarpgroup * MlaTile::kPanelsPerHalf * MlaTile::kPanelBytes);
  }

  // Waits for the product with the values of a tile; then its columns of the stage are released.
  template <int kWarpgroup>
  __device__ __forceinline__ void end_product(Rows& rows, int tile) {
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(rows.out);
    arrive_as_warp(shared_.empty(tile_stage(tile), MlaTile::values_part(kWarpgroup)));
  }
  __device__ __forceinline__ void release_queries() { arrive_as_warp(shared_.queries_empty()); }

  // Exchanges the sums of both warpgroups' tiles, then writes the results.
  __device__ __forceinline__ void finish(Rows& rows, const MlaWorkTile& work_tile, int work_tile_parity) {
    const int row = first_row(), warpgroup = this->warpgroup();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.sum[half] = quad_sum(rows.sum[half]);
      if (thread_ % 4 == 0) shared_.sums(work_tile_parity, warpgroup)[row + 8 * half] = rows.sum[half];
    }
    ptx::barrier_sync(kSumsBarrier, 32 * MlaTile::kMathWarps);
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Same order of addition in both warpgroups.
      const float other = shared_.sums(work_tile_parity, 1 - warpgroup)[row + 8 * half];
      sum[half] = warpgroup == 0 ? rows.sum[half] + other : other + rows.sum[half];
    }
    MlaResults<T, kPlain>(params_.attention, work_tile, warpgroup, thread_).write(rows, sum, scale_log2_);
  }

  __device__ __forceinline__ int tile_stage(int tile) const {
    return (num_tiles_before_ + tile) % MlaTile::kStages;
  }
  __device__ __forceinline__ uint32_t stage_parity(int tile) const {
    return static_cast<uint32_t>((num_tiles_before_ + tile) / MlaTile::kStages & 1);
  }
  // Index of the thread, and of the warpgroup, among the math warpgroups.
  __device__ __forceinline__ static int math_thread() { return ptx::tid_x() - 32 * MlaTile::kProducerWarps; }
  __device__ __forceinline__ static int warpgroup() { return math_thread() / 128; }
  __device__ __forceinline__ int first_row() const { return thread_ / 32 * 16 + thread_ % 32 / 4; }

  const MlaParams& params_;
  const MlaShared& shared_;
  const float scale_log2_;
  const int thread_ = static_cast<int>(threadIdx.x) % 128;  // in the warpgroup
  int num_tiles_before_ = 0;
  uint32_t p_parity_ = 0;
};

// `kPlain`: supports only problems with MlaParams::plain.
template <class T, bool kFp8, bool kPlans, bool kPlain>
__global__ void __launch_bounds__(MlaTile::kThreads, 1) mla_kernel(const __grid_constant__ MlaParams params) {
  extern __shared__ __align__(kMlaSwizzleAtom) char memory[];
  using Plan = CtaPlan<MlaTile::kThreads, kPlans, false>;
  const AttentionParams& attention = params.attention;
  const MlaShared shared(memory);
  if (threadIdx.x == 0) {
    const int num_row_warps = kFp8                          ? MlaTile::kProducerWarps
                              : params.box_rows == kMlaKeys ? 1
                                                            : MlaTile::kLoadWarps;
    shared.init_barriers(num_row_warps, kFp8 ? MlaTile::kProducerWarps : MlaTile::kQueryWarps);
    if (params.box_rows > 0) ptx::prefetch_tensormap(&params.latent);
    if (params.box_rows == kMlaKeys) ptx::prefetch_tensormap(&params.latent_rope);
    if (params.boxes_queries) {
      ptx::prefetch_tensormap(&params.q);
      ptx::prefetch_tensormap(&params.q_rope);
    }
  }
  const bool is_early = attention.prefix_ready;
  if (!is_early) ptx::griddepcontrol_wait();
  const Plan plan(attention);
  // A whole plan may have fewer row tiles than there are CTAs.
  if (attention.plan.streamed) {
    const PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    if (threadIdx.x == 0) shared.walk() = start;
  } else if (threadIdx.x == 0) {
    shared.walk().header = *attention.plan.header;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < MlaTile::kProducerWarps) {
    ptx::setmaxnreg_dec<MlaTile::kProducerRegisters>();
    if constexpr (kFp8)
      MlaConverter<T, Plan, kPlain>(params, shared).run(plan);
    else if (warp < MlaTile::kLoadWarps)
      MlaProducer<kPlain>(params, shared, warp).run(is_early);
    else
      MlaScheduler<Plan, kPlain>(params, shared, warp - MlaTile::kLoadWarps).run(plan);
    ptx::griddepcontrol_wait();
    write_padding(attention, shared.walk().header.num_tokens, 32 * MlaTile::kProducerWarps);
  } else {
    ptx::setmaxnreg_inc<MlaTile::kMathRegisters>();
    // Waits before results are written. The merge kernel may then start when the first CTA exits.
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    MlaConsumer<T, kFp8, kPlain>(params, shared).run();
  }
}

// Launch of MLA on sm_90a for one dtype of queries.

template <class T, bool kFp8, bool kPlans, bool kPlain>
void launch_mla_instance(const MlaParams& params, int num_ctas, void* stream) {
  constexpr auto kKernel = mla_kernel<T, kFp8, kPlans, kPlain>;
  allow_shared_memory<kKernel>(MlaShared::kBytes, "MLA: shared memory");
  launch_dependent<MlaParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), MlaTile::kThreads,
                              MlaShared::kBytes, stream, params, "MLA");
}

template <class T, bool kFp8, bool kPlain>
void launch_mla_planned(const MlaParams& params, int num_ctas, void* stream) {
  params.attention.plan.inline_plan ? launch_mla_instance<T, kFp8, true, kPlain>(params, num_ctas, stream)
                                    : launch_mla_instance<T, kFp8, false, kPlain>(params, num_ctas, stream);
}

template <class T, bool kFp8>
void launch_mla_rows(const MlaParams& params, int num_ctas, void* stream) {
  params.plain ? launch_mla_planned<T, kFp8, true>(params, num_ctas, stream)
               : launch_mla_planned<T, kFp8, false>(params, num_ctas, stream);
}

template <class T>
void launch_mla(const MlaParams& params, int num_ctas, void* stream) {
  const Element latent = params.attention.kv_element;
  latent == Element::kF8E4M3 || latent == Element::kF8E5M2
      ? launch_mla_rows<T, true>(params, num_ctas, stream)
      : launch_mla_rows<T, false>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
