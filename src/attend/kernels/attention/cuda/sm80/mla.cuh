// Absorbed MLA on mma.sync: rows of one request (query heads packed with query tokens) against tiles of
// latent rows, which are the keys and, in their first 512 columns, the values. Also attention at head dims up
// to 512 (MlaRows::kSeparate): keys and values are then separate rows of a KV head.
//
//   tile        16 or 64 rows x 32 latent rows, head dims 576 and 512, or 512 and 512
//   warps       8, all alike: all copy with cp.async. QK^T: 16 rows and 16 keys per warp, with the columns
//               divided among warps if rows are few. Scores pass through shared memory, where several threads
//               of each row convert them to P. PV: 64 columns of all rows per warp
//   registers   245 to 251, of which 32 (16 rows) or 128 (64 rows) are output accumulators
//   shared      139 KB (16 rows, 3 stages) or 159 KB (64 rows, 2 stages): queries, stages of 36 KB, scores,
//               P; for scaled rows 129 or 184 KB, with 3 stages of 20.5 KB and a tile of converted rows;
//               separate rows 155 KB (16 rows, 2 stages of 64 KB) or 142 KB (64 rows, 1 stage)
//   bytes       per tile: 36 KB, for scaled rows 20.5, once for all heads (once per 64 of them if the plan
//               has groups of heads); separate rows: 64 KB for each KV head
//   bound       16 rows: reading the latent rows; 64 rows: tensor cores and the transfer of scores through
//               shared memory
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/attention_mask.cuh"
#include "attend/kernels/attention/cuda/common/complete_partials.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/kv_pipeline.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_partials.cuh"
#include "attend/kernels/attention/cuda/sm80/scaled_row_pipeline.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {
namespace {

constexpr int kMlaHeadDimQk = 576, kMlaHeadDimV = 512, kMlaThreads = 256;

// Rows of the cache: 16-bit latent rows, scaled latent rows, or separate keys and values of several heads.
enum class MlaRows : uint8_t { kLatent, kScaled, kSeparate };

// `T`: type of q, the rows and the MMAs. kRowBlocks blocks of 16 rows. `kInlinePlan`: the CTAs derive the
// plan.
template <class T, int kRowBlocks, bool kInlinePlan, MlaRows kKind>
class MlaCta {
  static constexpr bool kScaled = kKind == MlaRows::kScaled, kSeparate = kKind == MlaRows::kSeparate;
  static constexpr int kHeadDimQk = kSeparate ? kMlaHeadDimV : kMlaHeadDimQk;
  static constexpr int kRows = 16 * kRowBlocks, kKeys = 32, kThreads = kMlaThreads, kWarps = kThreads / 32;
  // A tile has 36 KiB, or 64 KiB if rows are separate: the stages that fit on an SM of 163 KiB next to the
  // queries.
  static constexpr int kStages = (kRowBlocks == 1 ? 3 : 2) - (kSeparate ? 1 : 0);
  static constexpr int kKeyBlocks = kKeys / 16;
  static constexpr int kColumnParts = kWarps / (kRowBlocks * kKeyBlocks);
  static constexpr int kStepsPerWarp = kHeadDimQk / 16 / kColumnParts;
  static_assert(kColumnParts * kRowBlocks * kKeyBlocks == kWarps);
  static_assert(kColumnParts * kStepsPerWarp * 16 == kHeadDimQk);
  static constexpr int kMergeUnroll = merge_at_once(kMlaHeadDimV);
  static constexpr int kWarpColumns = kMlaHeadDimV / kWarps;
  // Threads that share a row's scores.
  static constexpr int kLanes = kThreads / kRows, kKeysPerLane = kKeys / kLanes;

  using Pipeline =
      std::conditional_t<kScaled, ScaledRowPipeline<T, kKeys, kThreads, /*kStages=*/3>,
                         KvPipeline<kHeadDimQk, kSeparate ? kMlaHeadDimV : 0, 2, kKeys, kThreads, kStages,
                                    /*kFillsAllStages=*/false, /*kReadsOnce=*/false>>;
  using Latent = SwizzledRows<kHeadDimQk * 2>;
  using P = SwizzledRows<kKeys * 2>;

  // Rows of scores start 8 banks apart, so that the 4 rows that a warp writes together are in different
  // banks.
  static constexpr int kScorePitch = kKeys + 8;
  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  static constexpr int kScoresAt = kQueryBytes + Pipeline::kSharedBytes;
  static constexpr int kPAt = kScoresAt + kColumnParts * kRows * kScorePitch * 4;
  static constexpr int kRowScalesAt = kPAt + kRows * kKeys * 2;

 public:
  static constexpr int kSharedBytes = kRowScalesAt + kRows * 4;

  __device__ MlaCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), pipeline_(params, shared + kQueryBytes) {}

  __device__ void run() {
    bool prefetches = params_.prefix_ready;
    if (!prefetches) ptx::griddepcontrol_wait();
    const CtaPlan<kThreads, kInlinePlan, false> plan(params_);
    const PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    walk_plan<false>(params_, plan, static_cast<int>(blockIdx.x), start,
                     [&](const RowTile& tile, int head, const KvTileRange& range) {
                       // With 16-bit latent rows there is one group of heads.
                       head_ = kKind == MlaRows::kLatent ? 0 : head;
                       attend(tile, range, prefetches);
                       prefetches = false;
                       if (range.partial_idx < 0 || !params_.plan.ctas_merge) return;
                       const PartialResults partials =
                           find_partial_results<false>(params_.plan, tile, head_, plan.partition());
                       int32_t* const num_done =
                           params_.plan.partials_done + tile.index * params_.num_kv_heads + head_;
                       if (complete_partials(num_done, 1, partials.count))
                         merge_partials<kMlaHeadDimV, kThreads, kMergeUnroll>(
                             params_, partials, 0, num_rows_, [this](int tile_row) {
                               const TileRow row = row_at(tile_row);
                               return OutputRow{span_.first_token + row.query, row.head};
                             });
                     });
    if (prefetches) ptx::griddepcontrol_wait();
    write_padding(params_, params_.batch.cu_seqlen_q[params_.batch.num_reqs]);
  }

 private:
  struct TileRow {
    int query, head;
  };
  __device__ TileRow row_at(int tile_row) const {
    const int row = first_in_group_ + tile_row;
    return {first_query_ + row / params_.group, head_ * params_.group + row % params_.group};
  }

  // `prefetches`: the previous kernel has not finished. Keys of the prefix are loaded immediately; keys that
  // it may still write, after griddepcontrol_wait().
  __device__ void attend(RowTile tile, const KvTileRange& range, bool prefetches) {
    span_ = request_span(tile);
    first_query_ = tile.first_query;
    first_in_group_ = tile.row_begin - tile.first_query * params_.group;
    num_rows_ = min(kRows, span_.seqlen_q * params_.group - tile.row_begin);
    const BatchParams& batch = params_.batch;
    const int j_last = row_at(num_rows_ - 1).query;
    // The plan may be that of a layer without a window.
    if (batch.window_left >= 0 || batch.chunk > 0)
      clip_to_layer(tile, key_range(batch, span_, first_query_, j_last));
    KeyRange full{0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      full = full_key_range(batch, span_, first_query_, j_last);

    const int kv_tile_keys = params_.plan.kv_tile_keys;
    const int range_begin = (tile.first_kv_tile + range.first) * kv_tile_keys;
    const int first_position = max(range_begin, tile.kv_begin / kKeys * kKeys);
    const int range_end = min(range_begin + range.count * kv_tile_keys, tile.kv_end);
    pipeline_.set_tiles(tile, kSeparate ? head_ : 0, first_position, range_end,
                        max(0, (range_end - first_position + kKeys - 1) / kKeys));
    int num_filled = 0;
    if (prefetches) {
      pipeline_.locate();
      num_filled = pipeline_.fill_before(span_.prefix());
      ptx::griddepcontrol_wait();
    }
    copy_queries();
    if (!prefetches) pipeline_.locate();
    pipeline_.fill(num_filled);

    const float softmax_scale_log2 = get_softmax_scale_log2(params_);
    float out[kRowBlocks][kWarpColumns / 8][4] = {};
    float row_max = -INFINITY, row_sum = 0.0f;  // of this thread's row, in all threads of the row
    for (int i = 0; i < pipeline_.count(); ++i) {
      pipeline_.wait(i);
      pipeline_.refill(i);
      if constexpr (kScaled) pipeline_.convert(i);
      multiply_qk(pipeline_.k(i));
      __syncthreads();
      if constexpr (kSeparate) pipeline_.wait_for_values(i);
      const int first_key = pipeline_.first_position(i);
      const bool edge = first_key < full.begin || first_key + kKeys > full.end;
      const bool changed = softmax(first_key, edge, softmax_scale_log2, row_max, row_sum);
      if (__syncthreads_or(changed)) rescale(out);
      pipeline_.publish_next(i);
      multiply_pv(values(i), out);
    }
    ptx::cp_async_wait_group<0>();
    write(out, softmax_scale_log2, row_max, row_sum, range.partial_idx);
  }

  // Copies columns of q, then those of q_rope. Rows and columns past the end are zero.
  __device__ void copy_queries() {
    constexpr int kPieces = kHeadDimQk / 8;
    const char* const none = static_cast<const char*>(params_.q.data);
    const int num_nope = params_.head_dim_qk - params_.rope_dim;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int tile_row = i / kPieces, column = i % kPieces * 8;
      const TileRow row = row_at(tile_row);
      const bool rope = column >= num_nope;
      const TokenRows& rows = rope ? params_.q_rope : params_.q;
      const int64_t from = (span_.first_token + row.query) * rows.token_stride + row.head * rows.head_stride +
                           (rope ? column - num_nope : column);
      const bool valid = tile_row < num_rows_ && column < params_.head_dim_qk;
      ptx::cp_async_16(ptx::shared_address(shared_) + Latent::offset(tile_row, column / 8),
                       valid ? static_cast<const char*>(rows.data) + from * 2 : none, valid);
    }
  }

  // Multiplies this warp's columns of its 16 rows and 16 keys.
  __device__ void multiply_qk(uint32_t keys) {
    const int thread = ptx::tid_x(), warp = thread / 32, lane = thread % 32;
    const int row_block = warp % kRowBlocks, key_block = warp / kRowBlocks % kKeyBlocks;
    const int column_part = warp / (kRowBlocks * kKeyBlocks);
    const uint32_t q_rows =
        ptx::shared_address(shared_) + Latent::offset(row_block * 16 + lane % 16, lane / 16);
    const uint32_t key_rows = keys + Latent::offset(key_block * 16 + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    // Two chains of MMAs per 8 keys.
    float scores[2][2][4] = {};
#pragma unroll
    for (int step = 0; step < kStepsPerWarp; ++step) {
      const int piece = (column_part * kStepsPerWarp + step) * 2;
      uint32_t a[4], b[4];
      ptx::ldmatrix_x4(a, Latent::advance(q_rows, piece));
      ptx::ldmatrix_x4(b, Latent::advance(key_rows, piece));
      ptx::mma_m16n8k16(scores[step % 2][0], a, b[0], b[1], T());
      ptx::mma_m16n8k16(scores[step % 2][1], a, b[2], b[3], T());
    }
    float* const to = scores_at(column_part, row_block * 16 + lane / 4) + key_block * 16 + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(to + half * 8 * kScorePitch + n * 8) =
            make_float2(scores[0][n][2 * half] + scores[1][n][2 * half],
                        scores[0][n][2 * half + 1] + scores[1][n][2 * half + 1]);
  }

  // Mask and online softmax: converts scores of this thread's row and keys to P. row_scales() receive the
  // factors of the rows' accumulators. Returns true if this row's factor is not 1.
  __device__ bool softmax(int first_key, bool edge, float softmax_scale_log2, float& row_max,
                          float& row_sum) {
    const int tile_row = static_cast<int>(threadIdx.x) / kLanes;
    const int first_column = static_cast<int>(threadIdx.x) % kLanes * kKeysPerLane;
    float scores[kKeysPerLane];
#pragma unroll
    for (int k = 0; k < kKeysPerLane; ++k) {
      scores[k] = 0.0f;
#pragma unroll
      for (int column_part = 0; column_part < kColumnParts; ++column_part)
        scores[k] += scores_at(column_part, tile_row)[first_column + k];
      if (params_.logit_cap > 0.0f)
        scores[k] = params_.logit_cap * tanhf(scores[k] * params_.scale / params_.logit_cap);
    }
    if (edge) {
      const bool is_row = tile_row < num_rows_;
      const QueryRange query = query_range(params_.batch, span_, row_at(is_row ? tile_row : 0).query);
      for (int k = 0; k < kKeysPerLane; ++k)
        if (!is_row || !sees(params_.batch, span_, query, first_key + first_column + k))
          scores[k] = -INFINITY;
    }
    float new_max = row_max;
#pragma unroll
    for (float score : scores) new_max = fmaxf(new_max, score);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, step));
    const float shift = new_max == -INFINITY ? 0.0f : __fmul_rn(new_max, softmax_scale_log2);
    const float rescale = ptx::ex2_approx(__fmul_rn(row_max, softmax_scale_log2) - shift);
    float added = 0.0f;
#pragma unroll
    for (float& score : scores) {
      score = ptx::ex2_approx(score * softmax_scale_log2 - shift);
      added += score;
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) added += __shfl_xor_sync(0xffffffffu, added, step);
    row_sum = row_sum * rescale + added;
    const bool changed = new_max != row_max;
    row_max = new_max;
    if (threadIdx.x % kLanes == 0) row_scales()[tile_row] = rescale;
    char* const to = shared_ + kPAt;
#pragma unroll
    for (int k = 0; k < kKeysPerLane; k += 2) {
      const int column = first_column + k;
      *reinterpret_cast<uint32_t*>(to + P::offset(tile_row, column / 8) + column % 8 * 2) =
          pack(scores[k], scores[k + 1], T());
    }
    return changed;
  }

  template <class Out>
  __device__ void rescale(Out& out) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float rescale = row_scales()[b * 16 + half * 8 + lane / 4];
#pragma unroll
        for (auto& eight : out[b]) {
          eight[2 * half] *= rescale;
          eight[2 * half + 1] *= rescale;
        }
      }
  }

  // Returns the address of the values of tile i.
  __device__ uint32_t values(int i) const {
    if constexpr (kSeparate)
      return pipeline_.v(i);
    else
      return pipeline_.k(i);
  }

  // out += P times this warp's columns of the values, which have the pitch of keys.
  template <class Out>
  __device__ void multiply_pv(uint32_t rows, Out& out) {
    const int thread = ptx::tid_x(), warp = thread / 32, lane = thread % 32;
    const uint32_t p = ptx::shared_address(shared_) + kPAt;
    // kWarpColumns are whole swizzle groups.
    const uint32_t value_rows = rows + Latent::offset(lane % 16, lane / 16) + warp * kWarpColumns * 2;
    static_assert(kWarpColumns / 8 % Latent::kGroup == 0);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t a[kRowBlocks][4];
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b)
        ptx::ldmatrix_x4(a[b], p + P::offset(b * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < kWarpColumns / 16; ++n) {
        uint32_t values[4];
        ptx::ldmatrix_x4_trans(values, Latent::advance(value_rows, n * 2) + step * 16 * kHeadDimQk * 2);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::mma_m16n8k16(out[b][2 * n], a[b], values[0], values[1], T());
          ptx::mma_m16n8k16(out[b][2 * n + 1], a[b], values[2], values[3], T());
        }
      }
    }
  }

  // Epilogue. The threads of a row's scores have its row sum; those of its accumulators get the scale through
  // shared memory.
  template <class Out>
  __device__ void write(const Out& out, float softmax_scale_log2, float row_max, float row_sum,
                        int partial_idx) {
    const int thread_row = static_cast<int>(threadIdx.x) / kLanes;
    __syncthreads();
    if (threadIdx.x % kLanes == 0 && thread_row < num_rows_) {
      row_scales()[thread_row] = 1.0f;
      if (partial_idx >= 0) {
        params_.plan.partial_state[int64_t{partial_idx} * params_.plan.partial_rows + thread_row] =
            make_float2(row_max, row_sum);
      } else {
        const TileRow row = row_at(thread_row);
        const RowResult result = finish_row(params_, row_max, row_sum, softmax_scale_log2, row.head);
        row_scales()[thread_row] = result.out_scale;
        if (params_.lse != nullptr)
          params_.lse[(span_.first_token + row.query) * params_.lse_token_stride +
                      row.head * params_.lse_head_stride] = result.lse;
      }
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int b = 0; b < kRowBlocks; ++b)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = b * 16 + half * 8 + lane / 4;
        if (tile_row >= num_rows_) continue;
        const TileRow row = row_at(tile_row);
        const float f = row_scales()[tile_row];
        const bool wide = partial_idx >= 0 || params_.out_element == Element::kF32;
        const int64_t first =
            partial_idx >= 0
                ? (int64_t{partial_idx} * params_.plan.partial_rows + tile_row) * params_.head_dim_v
                : (span_.first_token + row.query) * params_.out.token_stride +
                      row.head * params_.out.head_stride;
        void* const to = partial_idx >= 0 ? params_.plan.partial_out : params_.out.data;
#pragma unroll
        for (int n = 0; n < kWarpColumns / 8; ++n) {
          const int column = warp * kWarpColumns + n * 8 + lane % 4 * 2;
          if (column >= params_.head_dim_v) continue;
          const float x = out[b][n][2 * half] * f, y = out[b][n][2 * half + 1] * f;
          if (wide)
            *reinterpret_cast<float2*>(static_cast<float*>(to) + first + column) = make_float2(x, y);
          else
            *reinterpret_cast<uint32_t*>(static_cast<char*>(to) + (first + column) * 2) = pack(x, y, T());
        }
      }
  }

  __device__ float* scores_at(int column_part, int tile_row) const {
    return reinterpret_cast<float*>(shared_ + kScoresAt) + (column_part * kRows + tile_row) * kScorePitch;
  }
  __device__ float* row_scales() const { return reinterpret_cast<float*>(shared_ + kRowScalesAt); }

  const AttentionParams& params_;
  char* shared_;
  Pipeline pipeline_;
  RequestSpan span_;
  int first_query_, first_in_group_, num_rows_;
  int head_ = 0;  // group of query heads
};

template <class T, int kRowBlocks, bool kInlinePlan, MlaRows kKind>
__global__ void __launch_bounds__(kMlaThreads, 1) mla_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  MlaCta<T, kRowBlocks, kInlinePlan, kKind>(params, shared).run();
  ptx::launch_dependents();
}

template <class T, int kRowBlocks, bool kInlinePlan, MlaRows kKind>
void launch_mla_instance(const AttentionParams& params, int num_row_tiles, void* stream) {
  constexpr int kSharedBytes = MlaCta<T, kRowBlocks, kInlinePlan, kKind>::kSharedBytes;
  constexpr int kMost = kKind == MlaRows::kScaled ? kScaledMlaSharedBytes : kMlaSharedBytes;
  static_assert(kRowBlocks == 4 && kKind != MlaRows::kSeparate ? kSharedBytes == kMost
                                                               : kSharedBytes < kMost);
  constexpr auto kKernel = mla_kernel<T, kRowBlocks, kInlinePlan, kKind>;
  allow_shared_memory<kKernel>(kSharedBytes, "MLA: shared memory");
  const dim3 grid = params.plan.streamed ? dim3(static_cast<unsigned>(params.plan.num_ctas))
                                         : dim3(static_cast<unsigned>(num_row_tiles),
                                                static_cast<unsigned>(params.num_kv_heads));
  launch_dependent<AttentionParams>(kKernel, grid, kMlaThreads, kSharedBytes, stream, params, "MLA");
}

template <class T, MlaRows kKind>
void launch_mla_plan(const AttentionParams& params, int num_row_tiles, void* stream) {
  const auto launch = [&]<bool kInlinePlan>() {
    params.plan.tile_rows == 16
        ? launch_mla_instance<T, 1, kInlinePlan, kKind>(params, num_row_tiles, stream)
        : launch_mla_instance<T, 4, kInlinePlan, kKind>(params, num_row_tiles, stream);
  };
  params.plan.inline_plan ? launch.template operator()<true>() : launch.template operator()<false>();
}

}  // namespace
}  // namespace attend::kernels::cuda::sm80
