// Absorbed MLA with mma.sync: rows of one request (query heads packed with query tokens) against tiles of 32
// latent rows, which are the keys and, in their first columns, the values.
//
// Eight warps. Scores: 16 rows and 16 keys for each, with the columns shared among warps where rows are few.
// They meet in shared memory, where a few threads for each row turn them into weights. Results: 64 columns of
// all rows for each warp.
#pragma once

#include <type_traits>

#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/common/plan_walk.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/visible.cuh"
#include "attend/kernels/attention/cuda/sm80/key_stages.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_parts.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kMlaHeadDimQk = 576, kMlaHeadDimV = 512, kMlaThreads = 256;

// `T`: of q, the latent rows and the products. kRowBlocks blocks of 16 rows.
// `kPlans`: its CTAs derive the plan.
template <class T, int kRowBlocks, bool kPlans>
class MlaCta {
  static constexpr int kRows = 16 * kRowBlocks, kKeys = 32, kThreads = kMlaThreads, kWarps = kThreads / 32;
  // One tile is 36 KiB: what an SM of 163 KiB holds beside the queries.
  static constexpr int kStages = kRowBlocks == 1 ? 3 : 2;
  static constexpr int kKeyBlocks = kKeys / 16;
  static constexpr int kColumnParts = kWarps / (kRowBlocks * kKeyBlocks);
  static constexpr int kStepsPerWarp = kMlaHeadDimQk / 16 / kColumnParts;
  static_assert(kColumnParts * kRowBlocks * kKeyBlocks == kWarps);
  static_assert(kColumnParts * kStepsPerWarp * 16 == kMlaHeadDimQk);
  static constexpr int kMergeAtOnce = merge_at_once(kMlaHeadDimV);
  static constexpr int kWarpColumns = kMlaHeadDimV / kWarps;
  // Threads that share a row's scores.
  static constexpr int kLanes = kThreads / kRows, kKeysPerLane = kKeys / kLanes;

  using Stages = KeyStages<kMlaHeadDimQk, 0, 2, kKeys, kThreads, kStages, /*kFillsRing=*/false>;
  using Latent = SwizzledRows<kMlaHeadDimQk * 2>;
  using Weights = SwizzledRows<kKeys * 2>;

  // Rows of scores begin 8 banks apart, so that the 4 rows that a warp writes at once differ in theirs.
  static constexpr int kScorePitch = kKeys + 8;
  static constexpr int kQueryBytes = kRows * kMlaHeadDimQk * 2;
  static constexpr int kScoresAt = kQueryBytes + Stages::kSharedBytes;
  static constexpr int kWeightsAt = kScoresAt + kColumnParts * kRows * kScorePitch * 4;
  static constexpr int kFactorsAt = kWeightsAt + kRows * kKeys * 2;

 public:
  static constexpr int kSharedBytes = kFactorsAt + kRows * 4;

  __device__ MlaCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), stages_(params, shared + kQueryBytes) {}

  __device__ void run() {
    bool is_early = params_.old_keys_settled;
    if (!is_early) ptx::griddepcontrol_wait();
    const CtaPlan<kThreads, kPlans> plan(params_);
    const PlanStart start = plan.start(static_cast<int>(blockIdx.x));
    walk_plan<false>(params_, plan, start, [&](const RowTile& tile, int, const JobPart& part) {
      attend(tile, part, is_early);
      is_early = false;
      if (part.slot < 0 || !params_.plan.ctas_merge) return;
      const JobParts parts = parts_of<false>(params_.plan, tile, 0, plan.units_per_cta());
      if (complete_parts(params_.plan.parts_done + tile.index, 1, parts.count))
        merge_parts<kMlaHeadDimV, kThreads, kMergeAtOnce>(params_, parts, 0, num_rows_, [this](int tile_row) {
          const TileRow row = row_at(tile_row);
          return OutputRow{span_.first_token + row.query, row.head};
        });
    });
    if (is_early) ptx::griddepcontrol_wait();
    write_padding(params_, params_.batch.cu_seqlen_q[params_.batch.num_reqs]);
  }

 private:
  struct TileRow {
    int query, head;
  };
  __device__ TileRow row_at(int tile_row) const {
    const int row = first_in_group_ + tile_row;
    return {first_query_ + row / params_.group, row % params_.group};
  }

  // `is_early`: before the kernel before has ended. What it may still write is asked for when it has.
  __device__ void attend(RowTile tile, const JobPart& part, bool is_early) {
    span_ = request_span(tile);
    first_query_ = tile.first_query;
    first_in_group_ = tile.row_begin - tile.first_query * params_.group;
    num_rows_ = min(kRows, span_.seqlen_q * params_.group - tile.row_begin);
    const BatchParams& batch = params_.batch;
    const int j_last = row_at(num_rows_ - 1).query;
    // The plan may be one of a layer without a window.
    if (batch.window_left >= 0 || batch.chunk > 0)
      tile.kv_begin = max(tile.kv_begin, key_range(batch, span_, first_query_, j_last).begin);
    KeyRange full{0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      full = {first_visible(batch, position_of(batch, span_, j_last)),
              min(position_of(batch, span_, first_query_) + 1, span_.seqlen_kv)};

    const int unit_keys = params_.plan.unit_keys;
    const int part_begin = (tile.first_unit + part.first) * unit_keys;
    const int first_position = max(part_begin, tile.kv_begin / kKeys * kKeys);
    const int part_end = min(part_begin + part.count * unit_keys, tile.kv_end);
    stages_.aim(tile, 0, first_position, part_end, max(0, (part_end - first_position + kKeys - 1) / kKeys));
    int num_begun = 0;
    if (is_early) {
      stages_.locate();
      num_begun = stages_.begin_before(span_.prefix());
      ptx::griddepcontrol_wait();
    }
    copy_queries();
    if (!is_early) stages_.locate();
    stages_.begin(num_begun);

    const float factor = score_factor(params_);
    float out[kRowBlocks][kWarpColumns / 8][4] = {};
    float largest = -INFINITY, sum = 0.0f;  // of this thread's row, in all of its threads
    for (int i = 0; i < stages_.count(); ++i) {
      stages_.wait(i);
      stages_.refill(i);
      multiply_qk(stages_.k(i));
      __syncthreads();
      const int first_key = stages_.first_position(i);
      const bool edge = first_key < full.begin || first_key + kKeys > full.end;
      const bool changed = weigh(first_key, edge, factor, largest, sum);
      if (__syncthreads_or(changed)) rescale(out);
      stages_.publish_next(i);
      multiply_pv(stages_.k(i), out);
    }
    ptx::cp_async_wait_group<0>();
    write(out, factor, largest, sum, part.slot);
  }

  // Columns of q, then those of q_rope. Rows and columns beyond are zero.
  __device__ void copy_queries() {
    constexpr int kPieces = kMlaHeadDimQk / 8;
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

  // This warp's columns of its 16 rows and 16 keys.
  __device__ void multiply_qk(uint32_t keys) {
    const int thread = ptx::tid_x(), warp = thread / 32, lane = thread % 32;
    const int row_block = warp % kRowBlocks, key_block = warp / kRowBlocks % kKeyBlocks;
    const int column_part = warp / (kRowBlocks * kKeyBlocks);
    const uint32_t q_rows =
        ptx::shared_address(shared_) + Latent::offset(row_block * 16 + lane % 16, lane / 16);
    const uint32_t key_rows = keys + Latent::offset(key_block * 16 + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    // Two chains of products for each 8 keys.
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
    float* const to = scores_of(column_part, row_block * 16 + lane / 4) + key_block * 16 + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(to + half * 8 * kScorePitch + n * 8) =
            make_float2(scores[0][n][2 * half] + scores[1][n][2 * half],
                        scores[0][n][2 * half + 1] + scores[1][n][2 * half + 1]);
  }

  // Scores of this thread's row and keys to weights; rows get the factor of what they have so far. Whether
  // that is not 1.
  __device__ bool weigh(int first_key, bool edge, float factor, float& largest, float& sum) {
    const int tile_row = static_cast<int>(threadIdx.x) / kLanes;
    const int first_column = static_cast<int>(threadIdx.x) % kLanes * kKeysPerLane;
    float scores[kKeysPerLane];
#pragma unroll
    for (int k = 0; k < kKeysPerLane; ++k) {
      scores[k] = 0.0f;
#pragma unroll
      for (int column_part = 0; column_part < kColumnParts; ++column_part)
        scores[k] += scores_of(column_part, tile_row)[first_column + k];
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
    float highest = largest;
#pragma unroll
    for (float score : scores) highest = fmaxf(highest, score);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, step));
    const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, factor);
    const float rescale = ptx::ex2_approx(__fmul_rn(largest, factor) - shift);
    float added = 0.0f;
#pragma unroll
    for (float& score : scores) {
      score = ptx::ex2_approx(score * factor - shift);
      added += score;
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) added += __shfl_xor_sync(0xffffffffu, added, step);
    sum = sum * rescale + added;
    const bool changed = highest != largest;
    largest = highest;
    if (threadIdx.x % kLanes == 0) factors()[tile_row] = rescale;
    char* const to = shared_ + kWeightsAt;
#pragma unroll
    for (int k = 0; k < kKeysPerLane; k += 2) {
      const int column = first_column + k;
      *reinterpret_cast<uint32_t*>(to + Weights::offset(tile_row, column / 8) + column % 8 * 2) =
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
        const float rescale = factors()[b * 16 + half * 8 + lane / 4];
#pragma unroll
        for (auto& eight : out[b]) {
          eight[2 * half] *= rescale;
          eight[2 * half + 1] *= rescale;
        }
      }
  }

  // out += weights times this warp's columns of the latent rows.
  template <class Out>
  __device__ void multiply_pv(uint32_t keys, Out& out) {
    const int thread = ptx::tid_x(), warp = thread / 32, lane = thread % 32;
    const uint32_t weights = ptx::shared_address(shared_) + kWeightsAt;
    // kWarpColumns are the pieces of a whole number of swizzle groups.
    const uint32_t value_rows = keys + Latent::offset(lane % 16, lane / 16) + warp * kWarpColumns * 2;
    static_assert(kWarpColumns / 8 % Latent::kGroup == 0);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t a[kRowBlocks][4];
#pragma unroll
      for (int b = 0; b < kRowBlocks; ++b)
        ptx::ldmatrix_x4(a[b], weights + Weights::offset(b * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < kWarpColumns / 16; ++n) {
        uint32_t values[4];
        ptx::ldmatrix_x4_trans(values,
                                      Latent::advance(value_rows, n * 2) + step * 16 * kMlaHeadDimQk * 2);
#pragma unroll
        for (int b = 0; b < kRowBlocks; ++b) {
          ptx::mma_m16n8k16(out[b][2 * n], a[b], values[0], values[1], T());
          ptx::mma_m16n8k16(out[b][2 * n + 1], a[b], values[2], values[3], T());
        }
      }
    }
  }

  // The threads of a row's scores know its sum; those of its results get their factor by shared memory.
  template <class Out>
  __device__ void write(const Out& out, float factor, float largest, float sum, int slot) {
    const int own_row = static_cast<int>(threadIdx.x) / kLanes;
    __syncthreads();
    if (threadIdx.x % kLanes == 0 && own_row < num_rows_) {
      factors()[own_row] = 1.0f;
      if (slot >= 0) {
        params_.plan.partial_state[int64_t{slot} * params_.plan.partial_rows + own_row] =
            make_float2(largest, sum);
      } else {
        const TileRow row = row_at(own_row);
        const RowResult result = finish_row(params_, largest, sum, factor, row.head);
        factors()[own_row] = result.out_factor;
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
        const float f = factors()[tile_row];
        const bool wide = slot >= 0 || params_.out_element == Element::kF32;
        const int64_t first =
            slot >= 0 ? (int64_t{slot} * params_.plan.partial_rows + tile_row) * params_.head_dim_v
                      : (span_.first_token + row.query) * params_.out.token_stride +
                            row.head * params_.out.head_stride;
        void* const to = slot >= 0 ? params_.plan.partial_out : params_.out.data;
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

  __device__ float* scores_of(int column_part, int tile_row) const {
    return reinterpret_cast<float*>(shared_ + kScoresAt) + (column_part * kRows + tile_row) * kScorePitch;
  }
  __device__ float* factors() const { return reinterpret_cast<float*>(shared_ + kFactorsAt); }

  const AttentionParams& params_;
  char* shared_;
  Stages stages_;
  RequestSpan span_;
  int first_query_, first_in_group_, num_rows_;
};

template <class T, int kRowBlocks, bool kPlans>
__global__ void __launch_bounds__(kMlaThreads, 1) mla_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  MlaCta<T, kRowBlocks, kPlans>(params, shared).run();
  ptx::launch_dependents();
}

}  // namespace attend::kernels::cuda::sm80
