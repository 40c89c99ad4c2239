// Decode at head dims up to 512 with TMA and wgmma on sm_90a: a work tile of up to 64 query rows of one
// request and KV head (GQA heads packed with query tokens) against KV tiles of 64 keys. K and V are operands
// A of wgmma (swap-AB), so that few rows leave no part of an instruction empty: S^T = K Q^T, then O^T = V^T
// P^T.
//
//   tile        16 or 64 rows x 64 keys, 512 columns of K and of V
//   warps       2 consumer warpgroups: both compute S^T and P of every KV tile, and each multiplies its half
//   of
//               V's columns with P; they exchange nothing. A producer warpgroup: a warp for K and V with TMA,
//               or two with cp.async if pages have fewer than 8 rows; one that loads queries and schedules
//   registers   224 per consumer thread (64 rows: accumulators 128, scores 32, row states 32; 16 rows: 32, 8,
//               8), 56 per producer thread (setmaxnreg)
//   shared      16 rows: 213 KB: queries 16, six stages of half a tile of K or of V 192, P 4; 64 rows: 211
//   KB:
//               queries 64, four stages 128, P 16
//   bytes       per KV tile: 128 KB from memory, which take about 6,300 cycles at an SM's share of 4.8 TB/s
//   bound       memory. 16 rows: reading operands A from shared memory takes 16 cycles per wgmma m64n16k16,
//               1,536 cycles per KV tile; 64 rows: 3,072 cycles of wgmma
#pragma once

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan/cta_plan.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/wide_decode/wide_decode_kernel.h"
#include "attend/kernels/attention/cuda/sm90/wide_decode/wide_decode_producer.cuh"
#include "attend/kernels/attention/cuda/sm90/wide_decode/wide_decode_shared.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend_generated/wgmma_products.cuh"
#include "attend_generated/wgmma_transposed_products.cuh"

namespace attend::kernels::cuda::sm90 {

// A consumer warpgroup. Thread t holds of S^T keys 16 w + l / 4 + 8 half and rows 8 i + 2 (l % 4) + e, w its
// warp in the warpgroup and l its lane: scores_[4 i + 2 half + e]. Of O^T it holds such columns of each block
// of 64 columns, and the same rows.
template <class T, class Tile>
class WideDecodeConsumer {
  using Shared = WideDecodeShared<Tile>;
  static constexpr int kEights = Tile::kRows / 8;  // groups of eight rows
  static constexpr int kColumnBlocks = Tile::kUnitPanels;
  static constexpr int kWarpgroupBarrier = 1;  // named barriers of the warpgroups
  static constexpr float kSlack = 8.0f;        // a row max is stale by up to this after scaling

 public:
  // `warpgroup`: index among the consumers.
  __device__ WideDecodeConsumer(const AttentionParams& params, const Shared& shared, bool by_rows,
                                int warpgroup)
      : params_(params),
        shared_(shared),
        by_rows_(by_rows),
        warpgroup_(warpgroup),
        scale_log2_(get_softmax_scale_log2(params)) {}

  __device__ __forceinline__ void run() {
    uint32_t parity = 0;
    for (PipelineState place;; place.advance(Tile::kScheduleStages), parity ^= 1) {
      ptx::mbarrier_wait(shared_.schedule_full(place.stage), place.parity);
      const MlaWorkTile& work_tile = shared_.work_tile(place.stage);
      const int num_tiles = ptx::warp_uniform(work_tile.num_tiles);
      if (num_tiles < 0) return;
      clear();
      ptx::mbarrier_wait(shared_.queries_full(), parity);
      ptx::fence_proxy_async();
#pragma unroll 1
      for (int tile = 0; tile < num_tiles; ++tile) {
        multiply_keys();
        if (tile + 1 == num_tiles) arrive_as_warp(shared_.queries_empty());
        compute_p(work_tile, tile);
        multiply_values(work_tile, work_tile.first_key + tile * kWideKeys);
      }
      if (num_tiles == 0) arrive_as_warp(shared_.queries_empty());
      finish(work_tile);
      arrive_as_warp(shared_.schedule_empty(place.stage));
    }
  }

 private:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& block : out_)
#pragma unroll
      for (float& x : block) x = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * kEights; ++i) {
      row_max_[i] = -INFINITY;
      row_sum_[i] = 0.0f;
    }
  }

  __device__ __forceinline__ void wait_for_unit(const PipelineState& at) const {
    ptx::mbarrier_wait(shared_.full(at.stage), at.parity);
    if (by_rows_) ptx::fence_proxy_async();
  }
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(kWarpgroupBarrier + warpgroup_, 128); }

  // Computes S^T of the next KV tile and releases K.
  __device__ __forceinline__ void multiply_keys() {
    constexpr int kSteps = Tile::kPanelColumns / 16, kStepBytes = 32;
    const uint64_t q = ptx::smem_descriptor(shared_.queries());
    const PipelineState first = units_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      wait_for_unit(units_);
      const uint64_t k = ptx::smem_descriptor(shared_.stage(units_.stage));
      ptx::wgmma_fence();
#pragma unroll
      for (int panel = 0; panel < Tile::kUnitPanels; ++panel)
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma_mma_async(
              scores_, k + (panel * Tile::kPanelBytes + step * kStepBytes) / 16,
              q + ((half * Tile::kUnitPanels + panel) * Tile::kQueryPanelBytes + step * kStepBytes) / 16,
              half + panel + step > 0, T());
      ptx::wgmma_commit_group();
      if (half == 0) units_.advance(Tile::kStages);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(scores_);
    arrive_as_warp(shared_.empty(first.stage));
    arrive_as_warp(shared_.empty(units_.stage));
    units_.advance(Tile::kStages);
  }

  // Online softmax: converts scores to P^T, in shared memory as rows of keys, and scales the accumulators.
  __device__ __forceinline__ void compute_p(const MlaWorkTile& work_tile, int tile) {
    const int lane = ptx::lane(), warp = ptx::warp_in_warpgroup();
    if (params_.logit_cap > 0.0f) {
      const ScoreCap cap(params_);
#pragma unroll
      for (float& score : scores_) score = cap(score);
    }
    if (tile < work_tile.full.begin || tile >= work_tile.full.end)
      mask(work_tile, work_tile.first_key + tile * kWideKeys);

    // Maximum over the keys of the warp, then of the warpgroup.
    float maxima[2 * kEights];
#pragma unroll
    for (int i = 0; i < 2 * kEights; ++i) {
      maxima[i] = fmaxf(scores_[i / 2 * 4 + i % 2], scores_[i / 2 * 4 + 2 + i % 2]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2)
        maxima[i] = fmaxf(maxima[i], __shfl_xor_sync(0xffffffffu, maxima[i], step));
    }
    store_row_states(maxima);
    sync();
    load_row_states(maxima, [](float a, float b) { return fmaxf(a, b); });

#pragma unroll
    for (int i = 0; i < 2 * kEights; ++i) {
      float new_max = fmaxf(row_max_[i], maxima[i]);
      if ((new_max - row_max_[i]) * scale_log2_ <= kSlack) new_max = row_max_[i];
      const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, scale_log2_);
      // The product is rounded separately, so the factor is exactly 1 if the row max does not change.
      const float rescale = ptx::ex2_approx(__fmul_rn(row_max_[i], scale_log2_) - shift);
      row_max_[i] = new_max;
      float sum = row_sum_[i] * rescale;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = scores_[i / 2 * 4 + 2 * half + i % 2];
        score = ptx::ex2_approx(score * scale_log2_ - shift);
        sum += score;
      }
      row_sum_[i] = sum;
#pragma unroll
      for (auto& block : out_) {
        block[i / 2 * 4 + i % 2] *= rescale;
        block[i / 2 * 4 + 2 + i % 2] *= rescale;
      }
    }
    // Lane l passes the address of row l % 8 of a matrix of eight rows by eight keys.
    const uint32_t p = shared_.p(warpgroup_);
    const int piece = 2 * warp + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < kEights; i += 2) {
      const int row = 8 * (i + lane / 16) + lane % 8;
      uint32_t pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) pairs[j] = pack(scores_[4 * i + 2 * j], scores_[4 * i + 2 * j + 1], T());
      ptx::stmatrix_x4_trans(p + mla_swizzled(row, piece), pairs);
    }
    ptx::fence_proxy_async();
    sync();
  }

  // Sets masked scores to -inf. Rows past the work tile's are not used.
  __device__ __forceinline__ void mask(const MlaWorkTile& work_tile, int first_key) {
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, params_.plan.tile_rows);
    const int lane = ptx::lane(), key = first_key + 16 * ptx::warp_in_warpgroup() + lane / 4;
    const KeyRange& keys = work_tile.keys;
    // Bit 2 i + half: the row sees the key.
    uint32_t visible = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * kEights; ++i) {
      const int row = min(i / 2 * 8 + 2 * (lane % 4) + i % 2, rows.num_rows - 1);
      const QueryRange query = query_range(params_.batch, rows.span, rows.at(params_, row).query);
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const int k = key + 8 * half;
        if (k >= keys.begin && k < keys.end && sees(params_.batch, rows.span, query, k))
          visible |= 1u << (2 * i + half);
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * kEights; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if ((visible >> (2 * i + half) & 1) == 0) scores_[i / 2 * 4 + 2 * half + i % 2] = -INFINITY;
  }

  // Adds V^T P^T of this warpgroup's columns and releases V.
  __device__ __forceinline__ void multiply_values(const MlaWorkTile& work_tile, int first_key) {
    constexpr int kSteps = kWideKeys / 16, kStepBytes = 16 * Tile::kPanelRowBytes, kPStepBytes = 32;
    const int left = units_.stage;
    wait_for_unit(units_);
    units_.advance(Tile::kStages);
    wait_for_unit(units_);
    const uint32_t values = shared_.stage(warpgroup_ == 0 ? left : units_.stage);
    const KeyRange& keys = work_tile.keys;
    if (first_key < keys.begin || first_key + kWideKeys > keys.end)
      clear_rows(values, keys.begin - first_key, keys.end - first_key);
    const uint64_t v = ptx::smem_descriptor_mn_major(values, Tile::kPanelBytes),
                   p = ptx::smem_descriptor(shared_.p(warpgroup_));
    ptx::wgmma_fence();
#pragma unroll
    for (int block = 0; block < kColumnBlocks; ++block)
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ptx::wgmma_mma_async_transposed_a(out_[block],
                                          v + (block * Tile::kPanelBytes + step * kStepBytes) / 16,
                                          p + step * kPStepBytes / 16, true, T());
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (auto& block : out_) ptx::fence_operand(block);
    arrive_as_warp(shared_.empty(left));
    arrive_as_warp(shared_.empty(units_.stage));
    units_.advance(Tile::kStages);
  }

  // Sets this warpgroup's values of rows outside of [begin, end) to zero: values that are multiplied with a P
  // of 0 must not be infinite or NaN.
  __device__ __forceinline__ void clear_rows(uint32_t values, int begin, int end) const {
    const int thread = ptx::tid_x() % 128, piece = thread % 32;
    const uint32_t to = values + static_cast<uint32_t>(piece / 8 * Tile::kPanelBytes + piece % 8 * 16);
#pragma unroll 1
    for (int row = thread / 32; row < kWideKeys; row += 4)
      if (row < begin || row >= end)
        ptx::st_shared_16(to + static_cast<uint32_t>(row * Tile::kPanelRowBytes), make_uint4(0, 0, 0, 0));
    ptx::fence_proxy_async();
    sync();
  }

  // Stores the states of the warp's rows: all lanes of a row hold the same.
  __device__ __forceinline__ void store_row_states(const float (&states)[2 * kEights]) const {
    const int lane = ptx::lane();
    float* const to = shared_.row_states(4 * warpgroup_ + ptx::warp_in_warpgroup());
    if (lane < 4) {
#pragma unroll
      for (int i = 0; i < kEights; ++i)
        *reinterpret_cast<float2*>(to + 8 * i + 2 * lane) = make_float2(states[2 * i], states[2 * i + 1]);
    }
  }
  // Combines the states of the warpgroup's warps, in their order.
  template <class Combine>
  __device__ __forceinline__ void load_row_states(float (&states)[2 * kEights],
                                                  const Combine& combine) const {
    const int first = 2 * (ptx::lane() % 4);
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
#pragma unroll
      for (int warp = 0; warp < 4; ++warp) {
        const float2 state =
            *reinterpret_cast<const float2*>(shared_.row_states(4 * warpgroup_ + warp) + 8 * i + first);
        states[2 * i] = warp == 0 ? state.x : combine(states[2 * i], state.x);
        states[2 * i + 1] = warp == 0 ? state.y : combine(states[2 * i + 1], state.y);
      }
    }
  }

  // Writes results, or a partial result of the plan.
  __device__ __forceinline__ void finish(const MlaWorkTile& work_tile) {
#pragma unroll
    for (float& sum : row_sum_)
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    store_row_states(row_sum_);
    sync();
    load_row_states(row_sum_, [](float a, float b) { return a + b; });
    sync();
    const WorkTileRows rows(params_, work_tile.tile, work_tile.head, params_.plan.tile_rows);
    const int lane = ptx::lane(), warp = ptx::warp_in_warpgroup(), partial_idx = work_tile.partial_idx;
    const bool has_row_state = warpgroup_ == 0 && warp == 0 && lane < 4;
    const int first_column = warpgroup_ * (kWideHeadDim / 2) + 16 * warp + lane / 4;
    const bool wide = partial_idx >= 0 || params_.out_element == Element::kF32;
#pragma unroll
    for (int i = 0; i < 2 * kEights; ++i) {
      const int tile_row = i / 2 * 8 + 2 * (lane % 4) + i % 2;
      if (tile_row >= rows.num_rows) continue;
      float scale = 1.0f;
      char* to;
      if (partial_idx >= 0) {
        const int64_t partial_row = int64_t{partial_idx} * params_.plan.partial_rows + tile_row;
        if (has_row_state) params_.plan.partial_state[partial_row] = make_float2(row_max_[i], row_sum_[i]);
        to = reinterpret_cast<char*>(params_.plan.partial_out + partial_row * params_.head_dim_v);
      } else {
        const TileRow row = rows.at(params_, tile_row);
        const RowResult result = finish_row(params_, row_max_[i], row_sum_[i], scale_log2_, row.head);
        if (has_row_state && params_.lse != nullptr)
          params_.lse[(rows.span.first_token + row.query) * params_.lse_token_stride +
                      row.head * params_.lse_head_stride] = result.lse;
        to = static_cast<char*>(params_.out.data) + (wide ? 4 : 2) * rows.offset_in(params_.out, row);
        scale = result.out_scale;
      }
      if (wide)
        write_row(i, first_column, scale, reinterpret_cast<float*>(to));
      else
        write_row(i, first_column, scale, reinterpret_cast<T*>(to));
    }
  }
  // Writes the thread's columns of a row.
  template <class Out>
  __device__ __forceinline__ void write_row(int i, int first_column, float scale, Out* to) const {
#pragma unroll
    for (int block = 0; block < kColumnBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = first_column + block * Tile::kPanelColumns + 8 * half;
        if (column < params_.head_dim_v) to[column] = Out(out_[block][i / 2 * 4 + 2 * half + i % 2] * scale);
      }
  }

  const AttentionParams& params_;
  const Shared& shared_;
  const bool by_rows_;
  const int warpgroup_;
  const float scale_log2_;
  PipelineState units_;
  float scores_[Tile::kRows / 2];
  float out_[kColumnBlocks][Tile::kRows / 2];
  // Element 2 i + e belongs to row 8 i + 2 (l % 4) + e. The row sum is over the thread's keys.
  float row_max_[2 * kEights], row_sum_[2 * kEights];
};

template <class T, int kRows, bool kInlinePlan>
__global__ void __launch_bounds__(WideDecodeTile<kRows>::kThreads, 1)
    wide_decode_kernel(const __grid_constant__ WideDecodeParams params) {
  extern __shared__ __align__(1024) char memory[];
  using Tile = WideDecodeTile<kRows>;
  using Plan = CtaPlan<Tile::kThreads, kInlinePlan, false>;
  const AttentionParams& attention = params.attention;
  const WideDecodeShared<Tile> shared(memory);
  const bool by_rows = params.box_rows == 0;
  if (threadIdx.x == 0) {
    shared.init_barriers(by_rows);
    if (!by_rows) {
      ptx::prefetch_tensormap(&params.k);
      ptx::prefetch_tensormap(&params.v);
    }
  }
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const Plan plan(attention);
  // A whole plan may have fewer row tiles than there are CTAs.
  if (attention.plan.streamed) {
    const PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    if (threadIdx.x == 0) shared.walk() = start;
  } else if (threadIdx.x == 0) {
    shared.walk().header = *attention.plan.header;
  }
  __syncthreads();
  const int warp = ptx::warp_uniform(static_cast<int>(threadIdx.x) / 32);
  if (warp >= Tile::kProducerWarps) {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    WideDecodeConsumer<T, Tile>(attention, shared, by_rows, (warp - Tile::kProducerWarps) / 4).run();
  } else {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    if (warp == Tile::kQueryWarp)
      WideDecodeScheduler<Tile, Plan>(attention, shared).run(plan);
    else if (warp < (by_rows ? Tile::kRowWarps : 1))
      WideDecodeProducer<Tile>(params, shared, warp).run();
    write_padding(attention, shared.walk().header.num_tokens, 32 * Tile::kProducerWarps);
  }
}

template <class T, int kRows, bool kInlinePlan>
void launch_wide_decode_instance(const WideDecodeParams& params, int num_ctas, void* stream) {
  using Tile = WideDecodeTile<kRows>;
  constexpr auto kKernel = wide_decode_kernel<T, kRows, kInlinePlan>;
  constexpr int kSharedBytes = WideDecodeShared<Tile>::kBytes;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<WideDecodeParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                     kSharedBytes, stream, params, "attention");
}

template <class T, int kRows>
void launch_wide_decode_rows(const WideDecodeParams& params, int num_ctas, void* stream) {
  params.attention.plan.inline_plan ? launch_wide_decode_instance<T, kRows, true>(params, num_ctas, stream)
                                    : launch_wide_decode_instance<T, kRows, false>(params, num_ctas, stream);
}

template <class T>
void launch_wide_decode(const WideDecodeParams& params, int num_ctas, void* stream) {
  params.attention.plan.tile_rows == 16 ? launch_wide_decode_rows<T, 16>(params, num_ctas, stream)
                                        : launch_wide_decode_rows<T, 64>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
