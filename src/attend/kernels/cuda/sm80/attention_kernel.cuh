// Attention with mma.sync: query rows of one request and KV head (GQA heads packed with query tokens) against
// tiles of keys. Keys are looked up row by row, so that any page size and layout is one code path.
#pragma once

#include <type_traits>

#include "attend/kernels/cuda/padding.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/sm80/convert_tile.cuh"
#include "attend/kernels/cuda/sm80/key_stages.cuh"
#include "attend/kernels/cuda/sm80/tile_results.cuh"

namespace attend::kernels::cuda::sm80 {

// `T`: of q and of the products. `kFp8`: K and V are fp8, converted to T; else they are T.
//
// A CTA has a list of jobs: all or some keys of a row tile for one KV head. While it computes one, the keys
// of the next come in, and after the last product with q the queries of the next too.
template <class T, int kHeadDimQk, int kHeadDimV, bool kFp8, int kTileRows>
class AttentionCta {
  using Config = TileConfig<kHeadDimQk, kHeadDimV, kTileRows>;
  static constexpr int kRows = Config::kRows, kThreads = Config::kThreads, kKeys = Config::kKeys;
  static constexpr int kKeysPerWarp = kKeys / Config::kWarpsN;
  using Stages = KeyStages<kHeadDimQk, kHeadDimV, kFp8 ? 1 : 2, kKeys, kThreads, Config::kStages>;
  using Queries = SwizzledRows<kHeadDimQk * 2>;
  using Warp =
      WarpTile<T, kHeadDimQk, kHeadDimV, Config::kRowBlocks, kKeysPerWarp, Config::kQueriesInRegisters>;
  using Results = TileResults<T, kHeadDimV, Config, Warp>;

  static constexpr int kQueryBytes = kRows * kHeadDimQk * 2;
  static constexpr int kConvertedBytesK = kFp8 ? kKeys * kHeadDimQk * 2 : 0;
  static constexpr int kConvertedBytesV = kFp8 ? kKeys * kHeadDimV * 2 : 0;
  static constexpr int kConvertedBytes = kConvertedBytesK + kConvertedBytesV;
  // Warps merge their results where the last tile was.
  static_assert(Results::kMergeOutBytes <= (kFp8 ? kConvertedBytes : Stages::kStageBytes));

  // Behind the queries: stages, converted keys, sums of merging warps, the row tile of the next job.
  static constexpr int kConvertedAt = kQueryBytes + Stages::kSharedBytes;
  static constexpr int kSumsAt = kConvertedAt + kConvertedBytes;
  static constexpr int kNextTileAt = kSumsAt + Results::kMergeSumBytes;

 public:
  static constexpr int kSharedBytes = kNextTileAt + static_cast<int>(sizeof(RowTile));

  __device__ AttentionCta(const AttentionParams& params, char* shared)
      : params_(params), shared_(shared), stages_(params, shared + kQueryBytes) {}

  __device__ void run() {
    const PlanView& plan = params_.plan;
    const int cta = static_cast<int>(blockIdx.x);
    // Both loads at once; a tile that the plan does not have is not looked at.
    RowTile tile = plan.streamed ? plan.cta_first_tile[cta] : plan.row_tiles[cta];
    const PlanHeader header = *plan.header;
    int unit;
    if (plan.streamed) {
      ptx::allow_next_kernel();
      unit = cta * header.units_per_cta;
      unit_end_ = min(unit + header.units_per_cta, header.num_units);
    } else {
      unit = tile.unit_begin + static_cast<int>(blockIdx.y) * tile.num_key_tiles;
      unit_end_ = cta < header.num_row_tiles ? unit + tile.num_key_tiles : unit;
    }
    if (unit >= unit_end_) return;
    Job job{.unit = unit,
            .head = (unit - tile.unit_begin) / tile.num_key_tiles,
            .first = (unit - tile.unit_begin) % tile.num_key_tiles};
    copy_queries(TileRows(params_, tile, job.head, kRows));
    stages_.aim(key_span(tile, job));
    stages_.start();
    while (true) {
      attend(tile, job);
      if (next_.state == kNone) return;
      make_next_ready();
      tile = next_tile();
      job = next_.job;
    }
  }

 private:
  // Keys of a row tile for one KV head: from the row tile's key tile `first` on, to its end or the CTA's.
  // `unit`: the plan's number of the first.
  struct Job {
    int unit, head, first;
  };

  // The row tile of the next job comes into shared memory while a job is under way. States above kThere count
  // the steps until it is there.
  static constexpr int kNone = -1, kThere = 0, kToFetch = Config::kStages;
  struct NextJob {
    Job job;
    int tile_index;
    int state;
    bool keys_aimed, queries_copied;
  };

  __device__ int num_units(const RowTile& tile, const Job& job) const {
    return min(tile.num_key_tiles - job.first, unit_end_ - job.unit);
  }

  __device__ void find_next(const RowTile& tile, const Job& job) {
    const bool last_head = job.head + 1 == params_.num_kv_heads;
    const int unit = job.unit + num_units(tile, job);
    next_ = {.job = {.unit = unit, .head = last_head ? 0 : job.head + 1, .first = 0},
             .tile_index = tile.index + (last_head ? 1 : 0),
             .state = unit < unit_end_ ? kToFetch : kNone,
             .keys_aimed = false,
             .queries_copied = false};
  }
  __device__ const RowTile& next_tile() const {
    return *reinterpret_cast<const RowTile*>(shared_ + kNextTileAt);
  }

  __device__ void fetch_next() {
    constexpr int kPieces = sizeof(RowTile) / 16;
    if (threadIdx.x < kPieces)
      ptx::copy_async_16(
          ptx::shared_address(shared_ + kNextTileAt + threadIdx.x * 16),
          reinterpret_cast<const char*>(params_.plan.row_tiles + next_.tile_index) + threadIdx.x * 16);
  }

  // All copies of a step, and those that lead to the next job.
  __device__ void refill() {
    if (next_.state == kToFetch) fetch_next();
    if (next_.state > kThere) --next_.state;
    stages_.refill();
    if (next_.state == kThere && !next_.keys_aimed && stages_.exhausted()) aim_next();
    stages_.step();
  }
  __device__ void aim_next() {
    stages_.aim(key_span(next_tile(), next_.job));
    next_.keys_aimed = true;
  }
  // No thread reads the present queries any more.
  __device__ void copy_next_queries() {
    copy_queries(TileRows(params_, next_tile(), next_.job.head, kRows));
    ptx::commit_copies();
    next_.queries_copied = true;
  }
  // Whatever of the next job is not there or under way yet, after a job that was too short for it.
  __device__ void make_next_ready() {
    if (!next_.queries_copied) __syncthreads();
    if (next_.state > kThere) {
      if (next_.state == kToFetch) fetch_next();
      ptx::commit_copies();
      ptx::wait_copies<0>();
      __syncthreads();
    }
    if (!next_.keys_aimed) aim_next();
    if (!next_.queries_copied) copy_next_queries();
  }

  // The keys of a job that this layer sees: the plan may be one of a layer without a window.
  __device__ KeySpan key_span(const RowTile& tile, const Job& job) const {
    const BatchParams& batch = params_.batch;
    int kv_begin = tile.kv_begin;
    if (batch.window_left >= 0 || batch.chunk > 0) {
      const TileRows rows(params_, tile, job.head, kRows);
      kv_begin = max(kv_begin, key_range(batch, rows.span(), rows.first_query(), rows.last_query()).begin);
    }
    const int begin = (tile.first_key_tile + job.first) * kKeyTile;
    const int first_position = max(begin, kv_begin / kKeys * kKeys);
    const int end = min(begin + num_units(tile, job) * kKeyTile, tile.kv_end);
    return {.request = tile.request,
            .head = job.head,
            .kv_begin = kv_begin,
            .kv_end = tile.kv_end,
            .first_position = first_position,
            .num_tiles = max(0, (end - first_position + kKeys - 1) / kKeys)};
  }

  // One job. Its queries and the first of its keys are there or under way.
  __device__ void attend(const RowTile& tile, const Job& job) {
    const TileRows rows(params_, tile, job.head, kRows);
    const KeySpan keys = key_span(tile, job);
    int partial = -1;
    if (job.first > 0)
      partial = 2 * static_cast<int>(blockIdx.x);
    else if (num_units(tile, job) < tile.num_key_tiles)
      partial = 2 * static_cast<int>(blockIdx.x) + 1;
    const KeyRange full = full_keys(rows);
    find_next(tile, job);

    Warp warp;
    warp.clear();
    const bool capped = params_.logit_cap > 0.0f;
    const float factor = capped ? kLog2E : params_.scale * kLog2E;
    const uint32_t q = ptx::shared_address(shared_) + static_cast<uint32_t>(warp_row() * kHeadDimQk * 2) +
                       Warp::query_lane();
    const uint32_t in_k = static_cast<uint32_t>(warp_key() * kHeadDimQk * 2) + Warp::key_lane();
    const uint32_t in_v = static_cast<uint32_t>(warp_key() * kHeadDimV * 2) + Warp::value_lane();
    int first_key = keys.first_position;
    bool first_step = true;
    for (int left = keys.num_tiles; left > 0;) {
      // The queries may be the newest copies.
      const bool present = stages_.wait(first_step);
      uint32_t k = stages_.k(), v = stages_.v();
      if (first_step) warp.hold_queries(q);
      first_step = false;
      refill();
      if (!present) continue;
      --left;
      if constexpr (kFp8) convert(k, v);
      warp.multiply_qk(q, k + in_k);
      if (left == 0 && next_.state == kThere) {
        __syncthreads();
        copy_next_queries();
      }
      if (capped) cap(warp);
      if (first_key < full.begin || first_key + kKeys > full.end) hide(warp, rows, first_key + warp_key());
      first_key += kKeys;
      warp.softmax(factor);
      warp.multiply_pv(v + in_v);
    }
    warp.finish_sums();
    const Results results(params_, rows, factor, partial);
    if constexpr (Config::kWarpsN > 1)
      results.merge(warp, reinterpret_cast<float*>(kFp8 ? shared_ + kConvertedAt : stages_.free_place()),
                    reinterpret_cast<float*>(shared_ + kSumsAt));
    else
      results.write(warp, warp_row());
  }

  __device__ static int warp_row() {
    return static_cast<int>(threadIdx.x) / 32 / Config::kWarpsN * Config::kRowBlocks * 16;
  }
  __device__ static int warp_key() {
    return static_cast<int>(threadIdx.x) / 32 % Config::kWarpsN * kKeysPerWarp;
  }

  // The keys that every row of the tile sees; none under a tree mask.
  __device__ KeyRange full_keys(const TileRows& rows) const {
    const BatchParams& batch = params_.batch;
    if (batch.tree_mask != nullptr && batch.causal) return {0, 0};
    return {first_visible(batch, position_of(batch, rows.span(), rows.last_query())),
            min(position_of(batch, rows.span(), rows.first_query()) + 1, rows.span().seqlen_kv)};
  }

  // Rows beyond the request's are zero. A few neighbouring threads share a row.
  __device__ void copy_queries(const TileRows& rows) {
    constexpr int kPieces = kHeadDimQk / 8, kLanes = 8, kRowsPerRound = kThreads / kLanes;
    static_assert(kPieces % kLanes == 0 && kRows % kRowsPerRound == 0 && kRowsPerRound % 8 == 0);
    const int first_row = static_cast<int>(threadIdx.x) / kLanes;
    const int first_piece = static_cast<int>(threadIdx.x) % kLanes;
    const char* q = static_cast<const char*>(params_.q.data);
    const uint32_t to = ptx::shared_address(shared_) + Queries::offset(first_row, first_piece);
#pragma unroll
    for (int round = 0; round < kRows / kRowsPerRound; ++round) {
      const int tile_row = first_row + round * kRowsPerRound;
      const TileRow row = rows.at(tile_row);
      const int64_t token = rows.span().first_token + row.query;
      const char* from = q + (token * params_.q.token_stride + row.head * params_.q.head_stride) * 2;
#pragma unroll
      for (int piece = 0; piece < kPieces; piece += kLanes) {
        const bool valid = tile_row < rows.count() && (first_piece + piece) * 8 < params_.head_dim_qk;
        ptx::copy_async_16(to + static_cast<uint32_t>(round * kRowsPerRound * kHeadDimQk * 2 + piece * 16),
                           valid ? from + (first_piece + piece) * 16 : q, valid);
      }
    }
  }

  // Moves the tile at shared addresses k and v to 16-bit rows and points k and v there.
  __device__ void convert(uint32_t& k, uint32_t& v) {
    const bool e5m2 = params_.kv_element == Element::kF8E5M2;
    char* converted = shared_ + kConvertedAt;
    const uint32_t base = ptx::shared_address(shared_);
    convert_rows<T, kKeys, kHeadDimQk, kThreads>(shared_ + (k - base), converted, e5m2);
    convert_rows<T, kKeys, kHeadDimV, kThreads>(shared_ + (v - base), converted + kConvertedBytesK, e5m2);
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
  __device__ uint64_t visible_keys(const TileRows& rows, int tile_row, int first_key) const {
    if (tile_row >= rows.count()) return 0;
    const QueryRange query = query_range(params_.batch, rows.span(), rows.at(tile_row).query);
    uint64_t visible = 0;
    if (params_.batch.tree_mask != nullptr && params_.batch.causal) {
#pragma unroll 1
      for (int i = 0; i < kKeysPerWarp; ++i)
        if (sees(params_.batch, rows.span(), query, first_key + i)) visible |= uint64_t{1} << i;
    } else {
      const int begin = max(query.lo - first_key, 0), end = min(query.hi + 1 - first_key, 64);
      if (begin < end) visible = ~uint64_t{0} >> (64 - (end - begin)) << begin;
    }
    return visible;
  }

  // Scores of keys that a row does not see become -inf.
  __device__ void hide(Warp& warp, const TileRows& rows, int first_key) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 0; b < Config::kRowBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile_row = warp_row() + b * 16 + half * 8 + lane / 4;
        const uint64_t visible = visible_keys(rows, tile_row, first_key) >> (lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < kKeysPerWarp / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if ((visible >> (n * 8 + i) & 1) == 0) warp.scores[b][n][2 * half + i] = -INFINITY;
      }
    }
  }

  const AttentionParams& params_;
  char* shared_;
  Stages stages_;
  int unit_end_;
  NextJob next_;
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
