// Attention with mma.sync: query rows of one request and KV head (GQA heads packed with query tokens) against
// tiles of 64 keys. Keys are looked up row by row, so that any page size and layout is one code path.
#pragma once

#include <type_traits>

#include "attend/kernels/cuda/padding.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/ptx/thread.cuh"
#include "attend/kernels/cuda/sm80/attention_tile.cuh"
#include "attend/kernels/cuda/sm80/fp8_queries.cuh"
#include "attend/kernels/cuda/sm80/fp8_tile.cuh"
#include "attend/kernels/cuda/sm80/key_stages.cuh"
#include "attend/kernels/cuda/sm80/merge_parts.cuh"
#include "attend/kernels/cuda/sm80/plan_walk.cuh"
#include "attend/kernels/cuda/sm80/row_state.cuh"
#include "attend/kernels/cuda/sm80/split_bank.cuh"
#include "attend/kernels/cuda/sm80/tile_config.h"
#include "attend/kernels/cuda/visible.cuh"

namespace attend::kernels::cuda::sm80 {

// `kElement`: of K and V. The products are of this type, of f16 for fp8. `kFixedSplits`: the plan has them.
template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits>
class AttentionCta {
  static constexpr bool kFp8 = is_fp8(kElement);
  using T = std::conditional_t<kElement == Element::kBF16, __nv_bfloat16, __half>;
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kFp8, kTileRows>;
  static_assert(!kFixedSplits || Config::kWarpsN == 1, "warps that share rows add in another order");
  // Where a taller tile takes many rows, this one may have few, and some warps none.
  static constexpr bool kMayHaveFewRows = kTileRows == 64 && max_tile_rows(kHeadDimV) == 128;
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kKeys = Config::kKeys;
  static constexpr int kKeysPerWarp = kKeys / Config::kWarpsN;
  static constexpr int kBytes = kFp8 ? 1 : 2;
  using Stages = KeyStages<kHeadDimQk, kHeadDimV, kBytes, kKeys, kThreads, Config::kStages>;
  using Queries = SwizzledRows<kHeadDimQk * 2>;
  using Warp = std::conditional_t<
      kFp8,
      Fp8WarpTile<kElement, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kHeldSteps>,
      WarpTile<T, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kHeldSteps>>;

  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  // Warps that share rows leave their results here, over the stages.
  static constexpr int kMergePitch = kHeadDimV + 4;
  static constexpr int kMergeBytes = Config::kWarpsN > 1 ? Config::kWarpsN* kRows*(kMergePitch + 2) *
                                                               static_cast<int>(sizeof(float))
                                                         : 0;
  static constexpr int kKeyBytes = Stages::kSharedBytes;

  static constexpr int kFullKeysAt = kQueryBytes + (kKeyBytes > kMergeBytes ? kKeyBytes : kMergeBytes);
  static constexpr int kRowScalesAt = kFullKeysAt + static_cast<int>(sizeof(KeyRange));

 public:
  static constexpr int kSharedBytes = kRowScalesAt + (kFp8 ? kRows * static_cast<int>(sizeof(float)) : 0);

  __device__ AttentionCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), stages_(params, shared + kQueryBytes) {}

  __device__ void run() {
    ptx::wait_for_previous_kernel();
    walk_plan<kFixedSplits>(params_,
                            [&](const RowTile& tile, int head, const JobPart& part, int units_per_cta) {
                              attend(tile, head, part);
                              if (part.slot >= 0 && params_.plan.ctas_merge)
                                finish_job(tile, head, part, units_per_cta);
                            });
  }

 private:
  // After a part of the job: merges all of them if this was the last to be computed.
  __device__ void finish_job(const RowTile& tile, int head, const JobPart& part, int units_per_cta) {
    const JobParts parts = parts_of<kFixedSplits>(tile, head, units_per_cta);
    int32_t* const num_done = params_.plan.parts_done + tile.index * params_.num_kv_heads + head;
    if (!complete_parts(num_done, kFixedSplits ? part.count : 1, parts.count)) return;
    merge_parts<kHeadDimV, kThreads>(params_, parts, 0, num_rows_, [this](int tile_row) {
      const TileRow row = row_at(tile_row);
      return OutputRow{span_.first_token + row.query, row.head};
    });
  }

  __device__ void attend(RowTile tile, int head, const JobPart& part) {
    span_ = request_span(tile);
    first_query_ = tile.first_query;
    first_in_group_ = tile.row_begin - tile.first_query * params_.group;
    num_rows_ = min(kRows, span_.seqlen_q * params_.group - tile.row_begin);
    head_ = head;
    find_ranges(tile);
    // The plan may be one of a layer without a window: what lies behind this layer's window is not read.
    const int unit_keys = params_.plan.unit_keys;
    const int part_begin = (tile.first_unit + part.first) * unit_keys;
    const int first_position = max(part_begin, tile.kv_begin / kKeys * kKeys);
    const int part_end = min(part_begin + part.count * unit_keys, tile.kv_end);
    const int num_tiles = max(0, (part_end - first_position + kKeys - 1) / kKeys);
    stages_.aim(tile, head, first_position, num_tiles);
    if constexpr (kFp8)
      convert_queries();
    else
      copy_queries();
    stages_.begin();

    Warp warp;
    warp.clear();
    const bool capped = params_.logit_cap > 0.0f;
    const float factor = score_factor(params_);
    const uint32_t q = ptx::shared_address(shared_) +
                       static_cast<uint32_t>(warp_row(threadIdx.x) * kHeadDimQk * 2) + Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kHeadDimQk * kBytes) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(warp_key() * kHeadDimV * kBytes) + Warp::value_lane();
    const bool has_rows = !kMayHaveFewRows || warp_row(threadIdx.x) < num_rows_;
    int i = 0;
    const int num_splits = kFixedSplits ? part.count : 1;
    for (int split = 0; split < num_splits; ++split) {
      const int split_end = part_begin + (split + 1) * unit_keys;
      const int end = kFixedSplits ? min(num_tiles, (split_end - first_position) / kKeys) : num_tiles;
      for (; i < end; ++i) {
        stages_.wait(i);
        if (i == 0) warp.hold_queries(q);
        stages_.refill(i);
        if (has_rows) warp.multiply_qk(q, stages_.k(i) + in_k);
        stages_.wait_for_values(i);
        if (!has_rows) continue;
        if constexpr (kFp8) unscale(warp);
        if (capped) cap(warp);
        const int first_key = stages_.first_position(i);
        const KeyRange full = full_keys();
        if (first_key < full.begin || first_key + kKeys > full.end) hide(warp, first_key + warp_key());
        warp.softmax(factor);
        warp.multiply_pv(stages_.v(i) + in_v);
      }
      warp.finish_sums();
      const bool last = split + 1 == num_splits;
      if constexpr (kFixedSplits) {
        const SplitBank<kHeadDimV, Config::kRowBlocks, kThreads> bank(params_.plan.split_bank);
        const bool banks = has_rows && part.slot < 0;
        if (banks && split > 0) bank.add_to(warp, factor);
        if (banks && !last) bank.put(warp);
      }
      if (last) ptx::wait_copies<0>();
      if (part.slot >= 0 || last) write(warp, factor, part.slot < 0 ? -1 : part.slot + split);
      if (!last) warp.clear();
    }
  }

  __device__ void write(const Warp& warp, float factor, int slot) {
    if constexpr (Config::kWarpsN > 1)
      merge_warps(warp, factor, slot);
    else if (slot >= 0 || params_.out_element == Element::kF32)
      write_wide_rows(warp, factor, slot);
    else
      write_narrow_rows(warp, factor);
  }

  __device__ static int warp_row(int thread) {
    return thread / 32 / Config::kWarpsN * Config::kRowBlocks * 16;
  }
  __device__ static int warp_key() {
    return static_cast<int>(threadIdx.x) / 32 % Config::kWarpsN * kKeysPerWarp;
  }

  // What a row of the tile is: a new token of the request and a query head.
  struct TileRow {
    int query, head;
  };
  __device__ TileRow row_at(int tile_row) const {
    const int row = first_in_group_ + tile_row;
    const int queries =
        params_.group == 1 ? row
                           : static_cast<int>(__umulhi(static_cast<uint32_t>(row), params_.group_reciprocal));
    return {first_query_ + queries, head_ * params_.group + row - queries * params_.group};
  }

  // Narrows the tile's keys to those of this layer, and finds those that every row of the tile sees.
  __device__ void find_ranges(RowTile& tile) {
    const BatchParams& batch = params_.batch;
    const int j_first = first_query_, j_last = row_at(num_rows_ - 1).query;
    if (batch.window_left >= 0 || batch.chunk > 0)
      tile.kv_begin = max(tile.kv_begin, key_range(batch, span_, j_first, j_last).begin);
    KeyRange full{0, 0};
    if (batch.tree_mask == nullptr || !batch.causal)
      full = {first_visible(batch, position_of(batch, span_, j_last)),
              min(position_of(batch, span_, j_first) + 1, span_.seqlen_kv)};
    if (threadIdx.x == 0) full_keys() = full;
  }
  // In shared memory, where it takes no registers from the products.
  __device__ KeyRange& full_keys() const { return *reinterpret_cast<KeyRange*>(shared_ + kFullKeysAt); }

  // Rows beyond the request's are zero. A few neighbouring threads share a row.
  __device__ void copy_queries() {
    constexpr int kPieces = kHeadDimQk / 8, kLanes = 8, kRowsPerRound = kThreads / kLanes;
    static_assert(kPieces % kLanes == 0 && kRows % kRowsPerRound == 0);
    const int first_row = static_cast<int>(threadIdx.x) / kLanes;
    const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
    const char* q = static_cast<const char*>(params_.q.data);
    const uint32_t to = ptx::shared_address(shared_) + Queries::offset(first_row, first_piece);
#pragma unroll
    for (int round = 0; round < kRows / kRowsPerRound; ++round) {
      const int tile_row = first_row + round * kRowsPerRound;
      const TileRow row = row_at(tile_row);
      const char* from =
          q +
          ((span_.first_token + row.query) * params_.q.token_stride + row.head * params_.q.head_stride) * 2;
#pragma unroll
      for (int piece = 0; piece < kPieces; piece += kLanes) {
        const bool valid = tile_row < num_rows_ && (first_piece + piece) * 8 < params_.head_dim_qk;
        ptx::copy_async_16(to + round * kRowsPerRound * kHeadDimQk * 2 + piece * 16,
                           valid ? from + (first_piece + piece) * 16 : q, valid);
      }
    }
  }

  // The same as f16, each row scaled by a power of two that unscale() takes back.
  __device__ void convert_queries() {
    constexpr int kLanes = 8, kRowsPerRound = kThreads / kLanes, kGroups = kHeadDimQk / 8 / kLanes;
    static_assert(kHeadDimQk / 8 % kLanes == 0 && kRows % kRowsPerRound == 0);
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
    for (int round = 0; round < kRows / kRowsPerRound; ++round) {
      const int tile_row = static_cast<int>(threadIdx.x) / kLanes + round * kRowsPerRound;
      const TileRow row = row_at(tile_row);
      const int64_t from =
          (span_.first_token + row.query) * params_.q.token_stride + row.head * params_.q.head_stride;
      float columns[kGroups][kGroupElements] = {};
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int column = (lane + g * kLanes) * kGroupElements;
        if (tile_row < num_rows_ && column < params_.head_dim_qk)
          load_group(params_.q.data, from + column, params_.q_element, columns[g]);
      }
      const float scale = store_f16_queries<kHeadDimQk>(columns, shared_, tile_row, lane);
      if (lane == 0) row_scales()[tile_row] = scale;
    }
  }
  __device__ float* row_scales() const { return reinterpret_cast<float*>(shared_ + kRowScalesAt); }

  __device__ void unscale(Warp& warp) {
    const int first_row = warp_row(threadIdx.x) + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = row_scales()[first_row + b * 16 + half * 8];
#pragma unroll
        for (auto& eight : warp.scores[b]) {
          eight[2 * half] *= scale;
          eight[2 * half + 1] *= scale;
        }
      }
    }
  }

  __device__ void cap(Warp& warp) {
    const float to_exponent = 2.0f * kLog2E * params_.scale / params_.logit_cap;
#pragma unroll
    for (auto& block : warp.scores)
#pragma unroll
      for (auto& eight : block)
#pragma unroll
        for (float& score : eight)
          // tanh x = 1 - 2 / (e^2x + 1)
          score = params_.logit_cap *
                  (1.0f - __fdividef(2.0f, ptx::exp2_fast(fminf(score * to_exponent, 120.0f)) + 1.0f));
  }

  // Bit i: the row sees key first_key + i.
  __device__ uint64_t visible_keys(int tile_row, int first_key) const {
    if (tile_row >= num_rows_) return 0;
    const QueryRange query = query_range(params_.batch, span_, row_at(tile_row).query);
    uint64_t visible = 0;
    if (params_.batch.tree_mask != nullptr && params_.batch.causal) {
#pragma unroll 1
      for (int i = 0; i < kKeysPerWarp; ++i)
        if (sees(params_.batch, span_, query, first_key + i)) visible |= uint64_t{1} << i;
    } else {
      const int begin = max(query.lo - first_key, 0), end = min(query.hi + 1 - first_key, 64);
      if (begin < end) visible = ~uint64_t{0} >> (64 - (end - begin)) << begin;
    }
    return visible;
  }

  // Scores of keys that a row does not see become -inf.
  __device__ void hide(Warp& warp, int first_key) {
    const int thread = ptx::fresh_thread(), lane = thread % 32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row(thread) + b * 16 + half * 8 + lane / 4;
        const uint64_t visible = visible_keys(tile_row, first_key) >> (lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < kKeysPerWarp / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if ((visible >> (n * 8 + i) & 1) == 0) warp.scores[b][n][2 * half + i] = -INFINITY;
      }
    }
  }

  // Where a row's result goes, in the output or in slot `slot` of the plan, and what it is multiplied with.
  struct RowTarget {
    char* out;
    float factor;
  };
  __device__ char* out_row(const TileRow& row) const {
    const int64_t token = span_.first_token + row.query;
    const int64_t at = token * params_.out.token_stride + row.head * params_.out.head_stride;
    return static_cast<char*>(params_.out.data) + at * (params_.out_element == Element::kF32 ? 4 : 2);
  }
  // One of the threads of a row `leads`: it writes what the row has one of.
  __device__ RowTarget finish(int tile_row, float largest, float sum, float factor, int slot,
                              bool leads) const {
    if (slot >= 0) {
      const int64_t slot_row = int64_t{slot} * params_.plan.partial_rows + tile_row;
      if (leads) params_.plan.partial_state[slot_row] = make_float2(largest, sum);
      return {reinterpret_cast<char*>(params_.plan.partial_out + slot_row * params_.head_dim_v), 1.0f};
    }
    const TileRow row = row_at(tile_row);
    const RowResult result = finish_row(params_, largest, sum, factor, row.head);
    if (leads && params_.lse != nullptr)
      params_.lse[(span_.first_token + row.query) * params_.lse_token_stride +
                  row.head * params_.lse_head_stride] = result.lse;
    return {out_row(row), result.out_factor};
  }

  // Float32: the output or a partial result.
  __device__ void write_wide_rows(const Warp& warp, float factor, int slot) {
    const int thread = ptx::fresh_thread(), lane = thread % 32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row(thread) + b * 16 + half * 8 + lane / 4;
        if (tile_row >= num_rows_) continue;
        const RowTarget target =
            finish(tile_row, warp.largest[b][half], warp.sum[b][half], factor, slot, lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          const int column = Warp::pair_column(lane, n);
          const float2 pair = warp.pair(b, half, n);
          if (column < params_.head_dim_v)
            reinterpret_cast<float2*>(target.out)[column / 2] =
                make_float2(pair.x * target.factor, pair.y * target.factor);
        }
      }
    }
  }

  // K and V of fp8 leave open which of the two 16-bit types the result has.
  __device__ uint32_t pack_out(float a, float b) const {
    if constexpr (kFp8)
      if (params_.out_element == Element::kBF16) return pack(a, b, __nv_bfloat16());
    return pack(a, b, T());
  }

  // By way of shared memory, so that a warp writes whole rows.
  __device__ void write_narrow_rows(const Warp& warp, float factor) {
    using Rows = SwizzledRows<kHeadDimV * 2>;
    constexpr int kWarpRows = Config::kRowBlocks * 16;
    static_assert(kRows * kHeadDimV * 2 <= Stages::kStageBytes * Config::kStages);
    const int thread = ptx::fresh_thread(), lane = thread % 32, first_row = warp_row(thread);
    char* staged = shared_ + kQueryBytes + first_row * kHeadDimV * 2;
    __syncthreads();
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int warp_tile_row = b * 16 + half * 8 + lane / 4, tile_row = first_row + warp_tile_row;
        const float out_factor = finish(tile_row, warp.largest[b][half], warp.sum[b][half], factor, -1,
                                        lane % 4 == 0 && tile_row < num_rows_)
                                     .factor;
#pragma unroll
        for (int n = 0; n < kHeadDimV / 8; ++n) {
          const int column = Warp::pair_column(lane, n);
          const float2 pair = warp.pair(b, half, n);
          *reinterpret_cast<uint32_t*>(staged + Rows::offset(warp_tile_row, column / 8) + column % 8 * 2) =
              pack_out(pair.x * out_factor, pair.y * out_factor);
        }
      }
    }
    __syncwarp();
    constexpr int kPieces = kHeadDimV / 8;
#pragma unroll 4
    for (int i = lane; i < kWarpRows * kPieces; i += 32) {
      const int row = i / kPieces, piece = i % kPieces, tile_row = first_row + row;
      if (tile_row >= num_rows_ || piece * 8 >= params_.head_dim_v) continue;
      *reinterpret_cast<uint4*>(out_row(row_at(tile_row)) + piece * 16) =
          *reinterpret_cast<const uint4*>(staged + Rows::offset(row, piece));
    }
  }

  // The warps hold results of the same rows over different keys. Warp 0 comes first, so that the order is
  // fixed.
  __device__ void merge_warps(const Warp& warp, float factor, int slot) {
    constexpr int kWarps = Config::kWarpsN;
    float* outs = reinterpret_cast<float*>(shared_ + kQueryBytes);  // [kWarps, kRows, kMergePitch]
    float* largests = outs + kWarps * kRows * kMergePitch;          // [kWarps, kRows]
    float* sums = largests + kWarps * kRows;
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = w * kRows + half * 8 + lane / 4;
      if (lane % 4 == 0) {
        largests[at] = warp.largest[0][half];
        sums[at] = warp.sum[0][half];
      }
#pragma unroll
      for (int n = 0; n < kHeadDimV / 8; ++n)
        *reinterpret_cast<float2*>(outs + at * kMergePitch + Warp::pair_column(lane, n)) =
            warp.pair(0, half, n);
    }
    __syncthreads();
    // A few neighbouring threads share a row.
    constexpr int kLanes = kThreads / kRows;
    const int tile_row = threadIdx.x / kLanes;
    if (tile_row >= num_rows_) return;
    float largest = -INFINITY;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) largest = fmaxf(largest, largests[other * kRows + tile_row]);
    const float shift = largest == -INFINITY ? 0.0f : largest * factor;
    float weights[kWarps], sum = 0.0f;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
      weights[other] = ptx::exp2_fast(largests[other * kRows + tile_row] * factor - shift);
      sum += weights[other] * sums[other * kRows + tile_row];
    }
    const RowTarget target = finish(tile_row, largest, sum, factor, slot, threadIdx.x % kLanes == 0);
    const bool wide = slot >= 0 || params_.out_element == Element::kF32;
#pragma unroll
    for (int first = 0; first < kHeadDimV; first += 4 * kLanes) {
      const int column = first + threadIdx.x % kLanes * 4;
      if (column >= params_.head_dim_v) break;
      float4 out{};
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        const float4 part =
            *reinterpret_cast<const float4*>(outs + (other * kRows + tile_row) * kMergePitch + column);
        out.x += weights[other] * part.x;
        out.y += weights[other] * part.y;
        out.z += weights[other] * part.z;
        out.w += weights[other] * part.w;
      }
      const float f = target.factor;
      if (wide)
        *reinterpret_cast<float4*>(target.out + column * 4) =
            make_float4(out.x * f, out.y * f, out.z * f, out.w * f);
      else
        *reinterpret_cast<uint2*>(target.out + column * 2) =
            make_uint2(pack_out(out.x * f, out.y * f), pack_out(out.z * f, out.w * f));
    }
  }

  const AttentionParams& params_;
  char* shared_;
  Stages stages_;
  RequestSpan span_;
  int first_query_, first_in_group_, num_rows_;
  int head_;
};

template <Element kElement, int kHeadDimQk, int kHeadDimV, int kTileRows, bool kFixedSplits>
__global__ void __launch_bounds__(TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kThreads,
                                  TileConfig<kHeadDimQk, kHeadDimV, is_fp8(kElement), kTileRows>::kCtasPerSm)
    attention_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  AttentionCta<kElement, kHeadDimQk, kHeadDimV, kTileRows, kFixedSplits>(params, shared).run();
  ptx::allow_next_kernel();
  write_padding(params);
}

}  // namespace attend::kernels::cuda::sm80
