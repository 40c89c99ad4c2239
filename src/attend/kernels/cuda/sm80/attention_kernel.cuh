// Attention with mma.sync: query rows of one request and KV head (GQA heads packed with query tokens) against
// tiles of 64 keys. Keys are looked up row by row, so that any page size and layout is one code path.
#pragma once

#include <type_traits>

#include "attend/kernels/cuda/padding.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/sm80/convert_tile.cuh"
#include "attend/kernels/cuda/sm80/key_stages.cuh"
#include "attend/kernels/cuda/sm80/tile_config.h"
#include "attend/kernels/cuda/visible.cuh"

namespace attend::kernels::cuda::sm80 {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

// `T`: of q and of the products. `kFp8`: K and V are fp8, converted to T; else they are T.
template <class T, int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows>
class AttentionCta {
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kTileRows>;
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads;
  static constexpr int kKeysPerWarp = kKeyTile / Config::kWarpsN;
  using Stages = KeyStages<kHeadDimQk, kHeadDimV, kFp8 ? 1 : 2, kThreads, Config::kStages>;
  using Queries = SwizzledRows<kHeadDimQk * 2>;
  using Warp = WarpTile<T, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp>;

  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  static constexpr int kConvertedBytesK = kFp8 ? kKeyTile * kHeadDimQk * 2 : 0;
  static constexpr int kConvertedBytesV = kFp8 ? kKeyTile * kHeadDimV * 2 : 0;
  // Warps that share rows leave their results here, over the stages.
  static constexpr int kMergePitch = kHeadDimV + 4;
  static constexpr int kMergeBytes = Config::kWarpsN > 1 ? Config::kWarpsN* kRows*(kMergePitch + 2) *
                                                               static_cast<int>(sizeof(float))
                                                         : 0;
  static constexpr int kKeyBytes = Stages::kSharedBytes + kConvertedBytesK + kConvertedBytesV;

 public:
  static constexpr int kSharedBytes = kQueryBytes + (kKeyBytes > kMergeBytes ? kKeyBytes : kMergeBytes);

  __device__ AttentionCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), stages_(params, shared + kQueryBytes) {}

  __device__ void run() {
    const PlanView& plan = params_.plan;
    const int cta = static_cast<int>(blockIdx.x);
    // Both loads at once; a tile that the plan does not have is not looked at.
    RowTile tile = plan.streamed ? plan.cta_first_tile[cta] : plan.row_tiles[cta];
    const PlanHeader header = *plan.header;
    int unit, unit_end;
    if (plan.streamed) {
      ptx::allow_next_kernel();
      unit = cta * header.units_per_cta;
      unit_end = min(unit + header.units_per_cta, header.num_units);
    } else {
      unit = tile.unit_begin + static_cast<int>(blockIdx.y) * tile.num_key_tiles;
      unit_end = cta < header.num_row_tiles ? unit + tile.num_key_tiles : unit;
    }
    while (unit < unit_end) {
      const int head = (unit - tile.unit_begin) / tile.num_key_tiles;
      const int first = (unit - tile.unit_begin) % tile.num_key_tiles;
      const int count = min(tile.num_key_tiles - first, unit_end - unit);
      int partial = -1;
      if (first > 0)
        partial = 2 * cta;
      else if (count < tile.num_key_tiles)
        partial = 2 * cta + 1;
      attend(tile, head, first, count, partial);
      unit += count;
      if (unit >= unit_end) return;
      if (unit == tile.unit_begin + tile.num_key_tiles * params_.num_kv_heads)
        tile = plan.row_tiles[tile.index + 1];
      __syncthreads();
    }
  }

 private:
  // Key tiles [first, first + count) of a row tile for one KV head. `partial`: slot of the result, -1: final.
  __device__ void attend(RowTile tile, int head, int first, int count, int partial) {
    span_ = request_span(tile);
    first_query_ = tile.first_query;
    first_in_group_ = tile.row_begin - tile.first_query * params_.group;
    num_rows_ = min(kRows, span_.seqlen_q * params_.group - tile.row_begin);
    head_ = head;
    find_ranges(tile);
    // The plan may be one of a layer without a window: what lies behind this layer's window is not read.
    const int behind = max(0, tile.kv_begin / kKeyTile - tile.first_key_tile - first);
    first += behind;
    count = max(0, count - behind);
    copy_queries();
    stages_.begin(tile, head, first, count);

    Warp warp;
    warp.clear();
    const bool capped = params_.logit_cap > 0.0f;
    const float factor = capped ? kLog2E : params_.scale * kLog2E;
    const uint32_t q = ptx::shared_address(shared_) + static_cast<uint32_t>(warp_row() * kHeadDimQk * 2) +
                       Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kHeadDimQk * 2) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(warp_key() * kHeadDimV * 2) + Warp::value_lane();
    int first_key = (tile.first_key_tile + first) * kKeyTile;
    for (int i = 0; i < count; ++i, first_key += kKeyTile) {
      stages_.wait(i);
      stages_.refill(i);
      uint32_t k = stages_.k(i), v = stages_.v(i);
      if constexpr (kFp8) convert(k, v);
      warp.multiply_qk(q, k + in_k);
      if (capped) cap(warp);
      if (first_key < full_begin_ || first_key + kKeyTile > full_end_) hide(warp, first_key + warp_key());
      warp.softmax(factor);
      warp.multiply_pv(v + in_v);
    }
    warp.finish_sums();
    ptx::wait_copies<0>();
    if constexpr (Config::kWarpsN > 1)
      merge_warps(warp, factor, partial);
    else
      write_rows(warp, factor, partial);
  }

  __device__ static int warp_row() {
    return static_cast<int>(threadIdx.x) / 32 / Config::kWarpsN * Config::kRowBlocks * 16;
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

  // Narrows the tile's keys to those of this layer, and finds [full_begin_, full_end_), which are visible to
  // every row of the tile.
  __device__ void find_ranges(RowTile& tile) {
    const BatchParams& batch = params_.batch;
    const int j_first = first_query_, j_last = row_at(num_rows_ - 1).query;
    if (batch.window_left >= 0 || batch.chunk > 0)
      tile.kv_begin = max(tile.kv_begin, key_range(batch, span_, j_first, j_last).begin);
    full_begin_ = 0;
    full_end_ = 0;
    if (batch.tree_mask != nullptr && batch.causal) return;
    full_begin_ = first_visible(batch, position_of(batch, span_, j_last));
    full_end_ = min(position_of(batch, span_, j_first) + 1, span_.seqlen_kv);
  }

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

  // Moves the tile at shared addresses k and v to 16-bit rows and points k and v there.
  __device__ void convert(uint32_t& k, uint32_t& v) {
    const bool e5m2 = params_.kv_element == Element::kF8E5M2;
    char* converted = shared_ + kQueryBytes + Stages::kSharedBytes;
    const uint32_t base = ptx::shared_address(shared_);
    convert_rows<T, kKeyTile, kHeadDimQk, kThreads>(shared_ + (k - base), converted, e5m2);
    convert_rows<T, kKeyTile, kHeadDimV, kThreads>(shared_ + (v - base), converted + kConvertedBytesK, e5m2);
    __syncthreads();
    k = ptx::shared_address(converted);
    v = k + kConvertedBytesK;
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
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row() + b * 16 + half * 8 + lane / 4;
        const uint64_t visible = visible_keys(tile_row, first_key) >> (lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < kKeysPerWarp / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if ((visible >> (n * 8 + i) & 1) == 0) warp.scores[b][n][2 * half + i] = -INFINITY;
      }
    }
  }

  struct RowResult {
    float out_factor, lse;
  };
  // The last step of a row: `largest` and `sum` of the softmax to the factor of its output and to its LSE.
  __device__ RowResult finish_row(float largest, float sum, float factor, int q_head, bool final) const {
    if (sum == 0.0f) return {0.0f, -INFINITY};
    const float lse = largest * factor * kLn2 + __logf(sum);
    if (!final) return {__frcp_rn(sum), lse};
    float denominator = sum;
    if (params_.sinks != nullptr)
      denominator += ptx::exp2_fast(params_.sinks[q_head] * kLog2E - largest * factor);
    return {params_.v_scale * __frcp_rn(denominator), lse};
  }

  // Where a row's result goes: to `out` and `lse`, or to slot `partial` of the plan.
  struct RowTarget {
    char* out;
    float* lse;  // null: not wanted
  };
  __device__ RowTarget target_of(int tile_row, const TileRow& row, int partial) const {
    if (partial >= 0) {
      const int64_t slot_row = partial * kRows + tile_row;
      return {reinterpret_cast<char*>(params_.plan.partial_out + slot_row * params_.head_dim_v),
              params_.plan.partial_lse + slot_row};
    }
    const int64_t token = span_.first_token + row.query;
    const int64_t at = token * params_.out.token_stride + row.head * params_.out.head_stride;
    float* lse = params_.lse;
    if (lse != nullptr) lse += token * params_.lse_token_stride + row.head * params_.lse_head_stride;
    return {static_cast<char*>(params_.out.data) + at * (params_.out_element == Element::kF32 ? 4 : 2), lse};
  }

  // Results are float32 or T.
  __device__ void write_rows(const Warp& warp, float factor, int partial) {
    const int lane = threadIdx.x % 32, column = lane % 4 * 2;
    const bool wide = partial >= 0 || params_.out_element == Element::kF32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row() + b * 16 + half * 8 + lane / 4;
        if (tile_row >= num_rows_) continue;
        const TileRow row = row_at(tile_row);
        const RowResult result =
            finish_row(warp.largest[b][half], warp.sum[b][half], factor, row.head, partial < 0);
        const RowTarget target = target_of(tile_row, row, partial);
        if (lane % 4 == 0 && target.lse != nullptr) *target.lse = result.lse;
        if (wide) {
          float* to = reinterpret_cast<float*>(target.out) + column;
#pragma unroll
          for (int n = 0; n < kHeadDimV / 8; ++n)
            if (n * 8 < params_.head_dim_v)
              *reinterpret_cast<float2*>(to + n * 8) =
                  make_float2(warp.out[b][n][2 * half] * result.out_factor,
                              warp.out[b][n][2 * half + 1] * result.out_factor);
        } else {
          char* to = target.out + column * 2;
#pragma unroll
          for (int n = 0; n < kHeadDimV / 8; ++n)
            if (n * 8 < params_.head_dim_v)
              *reinterpret_cast<uint32_t*>(to + n * 16) =
                  pack(warp.out[b][n][2 * half] * result.out_factor,
                       warp.out[b][n][2 * half + 1] * result.out_factor, T());
        }
      }
    }
  }

  // The warps hold results of the same rows over different keys. Warp 0 comes first, so that the order is
  // fixed.
  __device__ void merge_warps(const Warp& warp, float factor, int partial) {
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
        *reinterpret_cast<float2*>(outs + at * kMergePitch + n * 8 + lane % 4 * 2) =
            make_float2(warp.out[0][n][2 * half], warp.out[0][n][2 * half + 1]);
    }
    __syncthreads();
    constexpr int kPairs = kHeadDimV / 2;
    const bool wide = partial >= 0 || params_.out_element == Element::kF32;
    for (int i = threadIdx.x; i < kRows * kPairs; i += kThreads) {
      const int tile_row = i / kPairs, column = i % kPairs * 2;
      if (tile_row >= num_rows_ || column >= params_.head_dim_v) continue;
      float largest = -INFINITY;
#pragma unroll
      for (int other = 0; other < kWarps; ++other)
        largest = fmaxf(largest, largests[other * kRows + tile_row]);
      const float shift = largest == -INFINITY ? 0.0f : largest * factor;
      float sum = 0.0f, a = 0.0f, b = 0.0f;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        const int at = other * kRows + tile_row;
        const float weight = ptx::exp2_fast(largests[at] * factor - shift);
        const float2 pair = *reinterpret_cast<const float2*>(outs + at * kMergePitch + column);
        sum += weight * sums[at];
        a += weight * pair.x;
        b += weight * pair.y;
      }
      const TileRow row = row_at(tile_row);
      const RowResult result = finish_row(largest, sum, factor, row.head, partial < 0);
      const RowTarget target = target_of(tile_row, row, partial);
      if (column == 0 && target.lse != nullptr) *target.lse = result.lse;
      a *= result.out_factor;
      b *= result.out_factor;
      if (wide)
        *reinterpret_cast<float2*>(target.out + column * 4) = make_float2(a, b);
      else
        *reinterpret_cast<uint32_t*>(target.out + column * 2) = pack(a, b, T());
    }
  }

  const AttentionParams& params_;
  char* shared_;
  Stages stages_;
  RequestSpan span_;
  int first_query_, first_in_group_, num_rows_;
  int head_;
  int full_begin_, full_end_;
};

template <class T, int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows>
__global__ void __launch_bounds__(TileConfig<kHeadDimQk, kHeadDimV, kTileRows>::kThreads,
                                  TileConfig<kHeadDimQk, kHeadDimV, kTileRows>::kCtasPerSm)
    attention_kernel(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  AttentionCta<T, kHeadDimQk, kHeadDimV, kFp8, kTileRows>(params, shared).run();
  write_padding(params);
}

}  // namespace attend::kernels::cuda::sm80
