// Swap-AB split-K GEMM on sm_90a: out = x W^T (+ bias) (+ out), or silu(gate) * up of its halves, for up to
// 128 rows of x, with TMA and wgmma. A and B are swapped: W is wgmma's A, 64 rows at a time, and the few rows
// of x are its B, so that little of N is padding. The CTAs of a cluster split K, exchange their partial sums
// through distributed shared memory and add them in the order of K.
//
//   tile        16 to 128 rows of W (16 tile_pairs) x kTokens rows of x (32, 64 or 128), K-blocks of 64;
//               persistent clusters of 1, 2, 4 or 8 CTAs
//   warps       kWarpgroups (1 or 2) multiply 64 rows of W each (wgmma m64n(kTokens)k16); a warp produces W
//               and a warp x, by TMA; under a deferred norm kScaleWarps more add the partial sums of squares
//   registers   103 (kTokens = 32), 119 (64) or 158 (128)
//   shared      two pipelines: of W, up to 20 stages of 2 tile_pairs KB, and of x, up to 12 of kTokens / 8
//               KB; partial sums of the cluster, kTokens / 4 KB a warpgroup. Up to 227 KB
//   bytes       W once from memory; x once per CTA and tile, from L2
//   bound       reading W
#pragma once

#include <cstdint>
#include <type_traits>

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab_gemm_kernel.h"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kRowBytes = 128;       // of a K-block
inline constexpr int kSwizzleBytes = 1024;  // what stages are aligned to

inline constexpr int kPairBytes = kPairRows * kRowBytes;

// Warps that add the partial sums of squares under a deferred norm: four, but for registers.
template <int kTokens>
constexpr int kScaleWarps = kTokens > 64 ? 2 : 4;

// A CTA's range of a layer: tiles first_tile, first_tile + num_clusters, ... and of each of them the K-blocks
// from k_block_begin to k_block_end.
struct SwapAbCtaRange {
  int rank, first_tile, num_clusters, k_block_begin, k_block_end;

  __device__ explicit SwapAbCtaRange(const SwapAbGemmParams& params)
      : rank(ptx::cluster_rank()),
        first_tile(static_cast<int>(blockIdx.x) / params.cluster_size),
        num_clusters(static_cast<int>(gridDim.x) / params.cluster_size),
        k_block_begin(params.num_k_blocks * rank / params.cluster_size),
        k_block_end(params.num_k_blocks * (rank + 1) / params.cluster_size) {}
};

// Shared memory and producers. Two pipelines, since W comes from far and x from L2: a stage of one holds a
// K-block of the tile's rows of W, a stage of the other a K-block of x. Layout: x, W, partial sums, subtiles,
// mbarriers, scales of the rows.
template <int kWarpgroups, int kTokens>
struct SwapAbPipeline {
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  // Partial sums of the cluster's CTAs, and a subtile of 16 features by 16 tokens a warp, rows padded by four
  // floats against bank conflicts.
  static constexpr int kPartialSumBytes =
      kWarpgroups * kWarpgroupRows * kTokens * static_cast<int>(sizeof(float));
  static constexpr int kSubtileStride = 20;
  static constexpr int kSubtileBytes = 16 * kSubtileStride * static_cast<int>(sizeof(float));
  static constexpr int kBarrierBytes = 8 * (2 * kMaxWeightStages + 2 * kMaxTokenStages + 3);
  static constexpr int kScaleBytes = kTokens * static_cast<int>(sizeof(float));
  static constexpr int kRestBytes =
      kPartialSumBytes + kConsumerWarps * kSubtileBytes + kBarrierBytes + kScaleBytes;

  // What the last warpgroup reads beyond its rows are the stages after, or partial sums.
  static_assert(kPartialSumBytes >= kWarpgroupRows * kRowBytes);

  static constexpr int shared_bytes(int weight_stages, int tile_pairs, int token_stages) {
    return kRestBytes + weight_stages * tile_pairs * kPairBytes + token_stages * kTokenBytes;
  }

  const SwapAbGemmParams& params;
  const SwapAbCtaRange range;
  uint32_t tokens, weights, partials, subtiles, barriers, scales;  // in the shared window

  __device__ __forceinline__ SwapAbPipeline(const SwapAbGemmParams& gemm, const char* shared)
      : params(gemm),
        range(gemm),
        tokens(ptx::shared_address(shared)),
        weights(tokens + gemm.token_stages * kTokenBytes),
        partials(weights + gemm.weight_stages * gemm.tile_pairs * kPairBytes),
        subtiles(partials + kPartialSumBytes),
        barriers(subtiles + kConsumerWarps * kSubtileBytes),
        scales(barriers + kBarrierBytes) {}

  __device__ __forceinline__ uint32_t barrier(int i) const { return barriers + 8 * i; }
  // When the partial sums of all CTAs of the cluster have come, and when all have read those from this one.
  __device__ __forceinline__ uint32_t partials_full() const { return barrier(0); }
  __device__ __forceinline__ uint32_t partials_empty() const { return barrier(1); }
  // When all rows' scales are there; once.
  __device__ __forceinline__ uint32_t scales_full() const { return barrier(2); }
  __device__ __forceinline__ uint32_t tokens_full(int stage) const { return barrier(3 + stage); }
  __device__ __forceinline__ uint32_t tokens_empty(int stage) const {
    return barrier(3 + params.token_stages + stage);
  }
  __device__ __forceinline__ uint32_t weights_full(int stage) const {
    return barrier(3 + 2 * params.token_stages + stage);
  }
  __device__ __forceinline__ uint32_t weights_empty(int stage) const {
    return weights_full(params.weight_stages + stage);
  }
  __device__ __forceinline__ uint32_t weights_at(int stage) const {
    return weights + stage * params.tile_pairs * kPairBytes;
  }
  __device__ __forceinline__ uint32_t tokens_at(int stage) const { return tokens + stage * kTokenBytes; }

  // By one thread.
  __device__ __forceinline__ void init() const {
    ptx::mbarrier_init(partials_full(), 1);
    ptx::mbarrier_init(partials_empty(), params.cluster_size * kConsumerWarps);
    ptx::mbarrier_init(scales_full(), kScaleWarps<kTokens>);
    for (int stage = 0; stage < params.token_stages; ++stage) {
      ptx::mbarrier_init(tokens_full(stage), 1);
      ptx::mbarrier_init(tokens_empty(stage), kConsumerWarps);
    }
    for (int stage = 0; stage < params.weight_stages; ++stage) {
      ptx::mbarrier_init(weights_full(stage), 1);
      ptx::mbarrier_init(weights_empty(stage), kConsumerWarps);
    }
    ptx::fence_mbarrier_init();
  }

  // Producer of W, one thread. W does not depend on the kernel before. kTiles: that a CTA takes together.
  template <int kTiles = 1>
  __device__ __forceinline__ void produce_weights() const {
    const uint64_t policy = ptx::createpolicy_evict_first();
    PipelineState state;
    for (int tile = range.first_tile; tile * kTiles < params.num_tiles; tile += range.num_clusters)
      for (int k_block = range.k_block_begin; k_block < range.k_block_end; ++k_block)
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          ptx::mbarrier_wait(weights_empty(state.stage), state.parity ^ 1);
          const uint32_t full = weights_full(state.stage);
          ptx::mbarrier_arrive_expect_tx(full, params.tile_pairs * kPairBytes);
          ptx::cp_async_bulk_tensor(weights_at(state.stage), &params.weight, k_block * kBlockK, 0, 0,
                                    (tile * kTiles + i) * params.tile_pairs, full, policy);
          state.advance(params.weight_stages);
        }
  }

  // Producer of x, one thread. kTokenBlocks: K-blocks of x to one of W, where a CTA has an even range of
  // them.
  template <int kTokenBlocks = 1, int kTiles = 1>
  __device__ __forceinline__ void produce_tokens() const {
    const uint64_t policy = ptx::createpolicy_evict_last();
    ptx::griddepcontrol_wait();
    PipelineState state;
    for (int tile = range.first_tile; tile * kTiles < params.num_tiles; tile += range.num_clusters)
      for (int k_block = kTokenBlocks * range.k_block_begin; k_block < kTokenBlocks * range.k_block_end;
           ++k_block) {
        ptx::mbarrier_wait(tokens_empty(state.stage), state.parity ^ 1);
        const uint32_t full = tokens_full(state.stage);
        ptx::mbarrier_arrive_expect_tx(full, kTokenBytes);
        ptx::cp_async_bulk_tensor(tokens_at(state.stage), &params.x, k_block * kBlockK, 0, full, policy);
        state.advance(params.token_stages);
      }
  }
};

// Deferred RMSNorm of x, by warp `warp` of kScaleWarps<kTokens>, while others multiply: the scale of every
// row. A row's partial sums of squares are added in an order that does not depend on the rows.
template <int kWarpgroups, int kTokens>
__device__ __forceinline__ void compute_row_scales(const SwapAbPipeline<kWarpgroups, kTokens>& pipeline,
                                                   float* scales, int warp) {
  constexpr int kLanes = 32, kRowsAtOnce = 8;
  const DeferredNorm& norm = pipeline.params.norm;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, num_rows = pipeline.params.num_rows;
  ptx::griddepcontrol_wait();
  for (int first = warp; first < num_rows; first += kScaleWarps<kTokens> * kRowsAtOnce) {
    float row_squares[kRowsAtOnce] = {};
#pragma unroll 2
    for (int square_idx = lane * 4; square_idx < norm.num_partial_squares; square_idx += kLanes * 4)
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const int row = first + i * kScaleWarps<kTokens>;
        if (row >= num_rows) break;
        const auto four =
            *reinterpret_cast<const float4*>(norm.partial_squares + row * norm.stride + square_idx);
        row_squares[i] += (four.x + four.y) + (four.z + four.w);
      }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      for (int step = kLanes / 2; step > 0; step /= 2)
        row_squares[i] += __shfl_xor_sync(~0u, row_squares[i], step);
      const int row = first + i * kScaleWarps<kTokens>;
      if (lane == 0 && row < num_rows)
        scales[row] = 1.0f / sqrtf(row_squares[i] / static_cast<float>(norm.num_partial_squares * kPairRows) +
                                   norm.eps);
    }
  }
  if (lane == 0) ptx::mbarrier_arrive(pipeline.scales_full());
}

// Defers the RMSNorm of out to the next GEMM: writes out * weight and the partial sum of squares, for eight
// features of a token from `feature` on; lanes l and l ^ 1 have a sum together.
__device__ __forceinline__ void defer_norm(const NextNorm& norm, int token, int feature,
                                           const float (&out)[kGroupElements], const uint4& weight_bits) {
  float weight[kGroupElements], weighted[kGroupElements];
  load_16_bit_group(reinterpret_cast<const __nv_bfloat16*>(&weight_bits), weight);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) {
    const float value = rounded(out[i], Element::kBF16);
    squares += value * value;
    weighted[i] = value * weight[i];
  }
  store_group(norm.weighted, token * norm.weighted_stride + feature, Element::kBF16, weighted);
  const uint32_t both = 3u << (threadIdx.x % 32 & ~1u);
  squares += __shfl_xor_sync(both, squares, 1);
  if (feature % kPairRows == 0)
    norm.partial_squares[token * norm.partial_squares_stride + feature / kPairRows] = squares;
}

// Epilogue: split-K reduction in the cluster, scale, bias, activation and store. A consumer thread holds rows
// l / 4 and l / 4 + 8 of its warp's 16, and of each group of eight tokens 2 (l % 4) and the next: four
// accumulators a group (wgmma_products.cuh.in). Gated, the two rows are gate and up of one feature. A subtile
// is two groups of a warp. Subtiles are dealt to the CTAs of the cluster, whose warps add the partial sums
// from rank 0 on and write the results.
template <int kWarpgroups, int kTokens>
class SwapAbEpilogue {
  using Pipeline = SwapAbPipeline<kWarpgroups, kTokens>;
  static constexpr int kWarps = Pipeline::kConsumerWarps;
  static constexpr int kColumns = kTokens / 16;  // of subtiles
  static constexpr int kFloatsOfLane = 8;        // of a subtile
  static constexpr int kHalfSubtileBytes = 512;  // four floats of 32 lanes

  // Where a subtile's results go.
  struct Origin {
    int row, token;  // the first of 16; gated, rows are of gate and up
  };
  // What out held, and the next norm's weights, of a lane's half of a row of a subtile.
  struct Prefetched {
    uint4 before, norm_weight;
  };

 public:
  using Accumulators = float[kTokens / 2];

  __device__ __forceinline__ SwapAbEpilogue(const Pipeline& pipeline, char* shared)
      : pipeline_(pipeline),
        params_(pipeline.params),
        subtile_(reinterpret_cast<float*>(shared + (pipeline.subtiles - pipeline.tokens) +
                                          warp_ * Pipeline::kSubtileBytes)),
        scales_(reinterpret_cast<const float*>(shared + (pipeline.scales - pipeline.tokens))) {}

  // By all consumers, before the K-blocks of a tile, behind which it would come late: for their warps' first
  // subtiles.
  __device__ __forceinline__ void prefetch(int tile) {
    if (first_subtile() < num_subtiles()) prefetched_ = prefetched_of(tile, first_subtile());
  }

  // By all consumers: this CTA's accumulators of a tile, tiles in order. `is_last`: of this CTA.
  __device__ __forceinline__ void exchange_and_write(int tile, const Accumulators& accumulators,
                                                     bool is_last) {
    const bool alone = params_.cluster_size == 1;
    if (alone) {
      store_own(accumulators);
      __syncwarp();
    } else {
      send_partials(accumulators);
      ptx::mbarrier_wait_cluster(pipeline_.partials_full(), parity_);
    }
    if (params_.norm.partial_squares != nullptr) ptx::mbarrier_wait(pipeline_.scales_full(), 0);
    const int step = alone ? params_.tile_pairs : kWarps << params_.cluster_shift;
    for (int subtile = first_subtile(); subtile < num_subtiles(); subtile += step)
      write(tile, subtile, subtile == first_subtile() ? prefetched_ : prefetched_of(tile, subtile));
    __syncwarp();
    if (!alone && !is_last && lane_ < params_.cluster_size)
      ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(pipeline_.partials_empty(), lane_));
    parity_ ^= 1;
    first_ = false;
  }

 private:
  // Whether this warp's rows are of the tile.
  __device__ __forceinline__ bool has_rows() const { return warp_ < params_.tile_pairs; }
  // Columns of subtiles that hold tokens, but at least so many.
  __device__ __forceinline__ int num_columns_used() const {
    return max(kMinColumns, (params_.num_rows + 15) / 16);
  }

  __device__ __forceinline__ int num_subtiles() const { return num_columns_used() * params_.tile_pairs; }
  // That this warp writes.
  __device__ __forceinline__ int first_subtile() const {
    if (params_.cluster_size == 1 && !has_rows()) return num_subtiles();
    return (warp_ << params_.cluster_shift) + pipeline_.range.rank;
  }
  __device__ __forceinline__ Origin origin_of(int tile, int subtile) const {
    const int column = subtile / params_.tile_pairs, pair = subtile - column * params_.tile_pairs;
    return {.row = (tile * params_.tile_pairs + pair) * kPairRows, .token = column * 16};
  }

  // Where this lane's floats of a subtile from the CTA of a rank lie in the CTA that writes the subtile.
  __device__ __forceinline__ uint32_t partial_address(int subtile, int rank) const {
    return pipeline_.partials +
           2 * kHalfSubtileBytes * ((subtile >> params_.cluster_shift << params_.cluster_shift) + rank) +
           16 * lane_;
  }

  // Without a cluster a warp writes its own subtiles.
  __device__ __forceinline__ void store_own(const Accumulators& accumulators) const {
    if (!has_rows()) return;
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = column * kFloatsOfLane + half * 4;
        ptx::st_shared_16(partial_address(column * params_.tile_pairs + warp_, 0) + half * kHalfSubtileBytes,
                          accumulators[first], accumulators[first + 1], accumulators[first + 2],
                          accumulators[first + 3]);
      }
  }

  __device__ __forceinline__ void send_partials(const Accumulators& accumulators) const {
    const int last_rank = params_.cluster_size - 1, num_columns = num_columns_used();
    if (threadIdx.x == 0) {
      // Subtiles of this rank, from each rank.
      const int num_subtiles =
          (num_columns * params_.tile_pairs - pipeline_.range.rank + last_rank) >> params_.cluster_shift;
      ptx::mbarrier_arrive_expect_tx(pipeline_.partials_full(), (2 * kHalfSubtileBytes * num_subtiles)
                                                                    << params_.cluster_shift);
    }
    if (!has_rows()) return;
    if (!first_) ptx::mbarrier_wait_cluster(pipeline_.partials_empty(), parity_ ^ 1);
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      if (column >= num_columns) continue;
      const int subtile = column * params_.tile_pairs + warp_, to_rank = subtile & last_rank;
      const uint32_t to = ptx::mapa(partial_address(subtile, pipeline_.range.rank), to_rank);
      const uint32_t full = ptx::mapa(pipeline_.partials_full(), to_rank);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = column * kFloatsOfLane + half * 4;
        ptx::st_async_16(to + half * kHalfSubtileBytes, accumulators[first], accumulators[first + 1],
                         accumulators[first + 2], accumulators[first + 3], full);
      }
    }
  }

  // By one warp.
  __device__ __forceinline__ void write(int tile, int subtile, const Prefetched& prefetched) const {
    float accumulators[kFloatsOfLane] = {};
    for (int rank = 0; rank < params_.cluster_size; ++rank)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 bits = ptx::ld_shared_16(partial_address(subtile, rank) + half * kHalfSubtileBytes);
        accumulators[half * 4] += __uint_as_float(bits.x);
        accumulators[half * 4 + 1] += __uint_as_float(bits.y);
        accumulators[half * 4 + 2] += __uint_as_float(bits.z);
        accumulators[half * 4 + 3] += __uint_as_float(bits.w);
      }
    const Origin origin = origin_of(tile, subtile);
    if (params_.norm.partial_squares != nullptr)
#pragma unroll
      for (int i = 0; i < kFloatsOfLane; ++i) accumulators[i] *= scales_[origin.token + token_of(i)];
    if (params_.gated)
      write_gated(origin, accumulators);
    else
      write_plain(origin, accumulators, prefetched);
  }

  // 16 features of 16 tokens. Half a row of the subtile for each lane.
  __device__ __forceinline__ void write_plain(const Origin& origin,
                                              const float (&accumulators)[kFloatsOfLane],
                                              const Prefetched& prefetched) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFloatsOfLane; ++i)
      subtile_[token_of(i) * Pipeline::kSubtileStride + lane_ / 4 + i / 2 % 2 * 8] = accumulators[i];
    __syncwarp();
    const int token = origin.token + lane_ / 2, feature = origin.row + lane_ % 2 * 8;
    if (!is_out(token, feature)) return;
    float group[kGroupElements];
    read_subtile(lane_ / 2, lane_ % 2 * 8, group);
    if (params_.bias.data != nullptr) {
      float bias[kGroupElements];
      load_some(params_.bias.data, feature, params_.bias.element, kGroupElements, bias);
      add(group, bias);
    }
    if (params_.accumulate) add_before(token, feature, prefetched, group);
    put_group(token, feature, group);
    if (params_.next_norm.weight != nullptr)
      defer_norm(params_.next_norm, token, feature, group, prefetched.norm_weight);
  }

  // 8 features of 16 tokens: gate and up are the lane's own. A row of the subtile for each of 16 lanes.
  __device__ __forceinline__ void write_gated(const Origin& origin,
                                              const float (&accumulators)[kFloatsOfLane]) const {
    const int feature = origin.row / 2;
    if (feature >= params_.out_features) return;
    float gate_bias = 0.0f, up_bias = 0.0f;
    if (const DeviceVector& bias = params_.bias; bias.data != nullptr) {
      gate_bias = load_element(bias.data, feature + lane_ / 4, bias.element);
      up_bias = load_element(bias.data, params_.out_features + feature + lane_ / 4, bias.element);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFloatsOfLane; ++i) {
      if (i / 2 % 2 == 1) continue;  // up
      const float gate = accumulators[i] + gate_bias;
      subtile_[token_of(i) * Pipeline::kSubtileStride + lane_ / 4] =
          gate / (1.0f + expf(-gate)) * (accumulators[i + 2] + up_bias);
    }
    __syncwarp();
    const int token = origin.token + lane_;
    if (lane_ >= 16 || !is_out(token, feature)) return;
    float group[kGroupElements];
    read_subtile(lane_, 0, group);
    put_group(token, feature, group);
  }

  // Of a subtile, that float i of this lane is of.
  __device__ __forceinline__ int token_of(int i) const { return i / 4 * 8 + lane_ % 4 * 2 + i % 2; }

  __device__ bool is_out(int token, int feature) const {
    return token < params_.num_rows && feature < params_.out_features;
  }
  __device__ int64_t out_at(int token, int feature) const { return token * params_.out_stride + feature; }

  // Eight features of a row of the subtile, from `column` on.
  __device__ __forceinline__ void read_subtile(int row, int column, float (&group)[kGroupElements]) const {
#pragma unroll
    for (int i = 0; i < kGroupElements; i += 4) {
      const auto four =
          *reinterpret_cast<const float4*>(subtile_ + row * Pipeline::kSubtileStride + column + i);
      group[i] = four.x;
      group[i + 1] = four.y;
      group[i + 2] = four.z;
      group[i + 3] = four.w;
    }
  }

  // Whether what out holds is prefetched.
  __device__ __forceinline__ bool prefetches_out() const {
    return params_.accumulate && params_.out_aligned && params_.out_element != Element::kF32;
  }
  __device__ __forceinline__ Prefetched prefetched_of(int tile, int subtile) const {
    Prefetched prefetched{};
    const Origin origin = origin_of(tile, subtile);
    const int token = origin.token + lane_ / 2, feature = origin.row + lane_ % 2 * 8;
    if (params_.gated || !is_out(token, feature)) return prefetched;
    if (prefetches_out()) prefetched.before = load_16_bytes(params_.out, out_at(token, feature));
    if (params_.next_norm.weight != nullptr)
      prefetched.norm_weight = load_16_bytes(params_.next_norm.weight, feature);
    return prefetched;
  }
  // Eight elements of 16 bits.
  __device__ static uint4 load_16_bytes(const void* data, int64_t i) {
    return *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + i);
  }

  __device__ __forceinline__ void add_before(int token, int feature, const Prefetched& prefetched,
                                             float (&group)[kGroupElements]) const {
    float before[kGroupElements];
    if (!prefetches_out())
      load_some(params_.out, out_at(token, feature), params_.out_element, kGroupElements, before);
    else if (params_.out_element == Element::kBF16)
      load_16_bit_group(reinterpret_cast<const __nv_bfloat16*>(&prefetched.before), before);
    else
      load_16_bit_group(reinterpret_cast<const __half*>(&prefetched.before), before);
    add(group, before);
  }
  __device__ __forceinline__ void put_group(int token, int feature,
                                            const float (&group)[kGroupElements]) const {
    const int64_t to = out_at(token, feature);
    if (params_.out_aligned)
      store_group(params_.out, to, params_.out_element, group);
    else
      store_some(params_.out, to, params_.out_element, kGroupElements, group);
  }

  __device__ static void add(float (&group)[kGroupElements], const float (&added)[kGroupElements]) {
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] += added[i];
  }

  const Pipeline& pipeline_;
  const SwapAbGemmParams& params_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
  float* subtile_;       // of this warp
  const float* scales_;  // of the rows
  Prefetched prefetched_{};
  uint32_t parity_ = 0;  // of this tile's exchange
  bool first_ = true;
};

// With the kScaleWarps, which come last.
template <int kWarpgroups, int kTokens>
constexpr int kSwapAbThreads = kWarpgroups * 128 + 64 + 32 * kScaleWarps<kTokens>;

// Consumer: all K-blocks of all tiles.
template <class T, int kWarpgroups, int kTokens>
__device__ __forceinline__ void consume(const SwapAbPipeline<kWarpgroups, kTokens>& pipeline, char* shared) {
  constexpr int kMmaBytes = 32;  // of a row: 16 elements
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, lane = static_cast<int>(threadIdx.x) % 32;
  SwapAbEpilogue<kWarpgroups, kTokens> epilogue(pipeline, shared);
  PipelineState weights, tokens;
  const auto release = [&](int weight_stage, int token_stage) {
    if (lane != 0) return;
    ptx::mbarrier_arrive(pipeline.weights_empty(weight_stage));
    ptx::mbarrier_arrive(pipeline.tokens_empty(token_stage));
  };
  const SwapAbCtaRange& range = pipeline.range;
  for (int tile = range.first_tile; tile < pipeline.params.num_tiles; tile += range.num_clusters) {
    epilogue.prefetch(tile);
    float accumulators[kTokens / 2];
    int last_weights = 0, last_tokens = 0;
    for (int k_block = range.k_block_begin; k_block < range.k_block_end; ++k_block) {
      ptx::mbarrier_wait(pipeline.weights_full(weights.stage), weights.parity);
      ptx::mbarrier_wait(pipeline.tokens_full(tokens.stage), tokens.parity);
      const uint64_t a =
          ptx::smem_descriptor(pipeline.weights_at(weights.stage) + warpgroup * kWarpgroupRows * kRowBytes);
      const uint64_t b = ptx::smem_descriptor(pipeline.tokens_at(tokens.stage));
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < kRowBytes / kMmaBytes; ++k)
        ptx::wgmma_mma_async(accumulators, a + k * (kMmaBytes / 16), b + k * (kMmaBytes / 16),
                             k_block > range.k_block_begin || k > 0, T{});
      ptx::wgmma_commit_group();
      // The wgmma of the K-block before have ended, and its stages are free.
      ptx::wgmma_wait_group<1>();
      if (k_block > range.k_block_begin) release(last_weights, last_tokens);
      last_weights = weights.stage;
      last_tokens = tokens.stage;
      weights.advance(pipeline.params.weight_stages);
      tokens.advance(pipeline.params.token_stages);
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(accumulators);
    release(last_weights, last_tokens);
    epilogue.exchange_and_write(tile, accumulators, tile + range.num_clusters >= pipeline.params.num_tiles);
  }
}

template <class T, int kWarpgroups, int kTokens>
__global__ void __launch_bounds__(kSwapAbThreads<kWarpgroups, kTokens>, 1)
    swap_ab_gemm_kernel(const __grid_constant__ SwapAbGemmParams params) {
  using Pipeline = SwapAbPipeline<kWarpgroups, kTokens>;
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  const Pipeline pipeline(params, shared);
  if (threadIdx.x == 0) pipeline.init();
  __syncthreads();
  // Nobody writes to a CTA whose mbarriers are not initialised yet.
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < Pipeline::kConsumerWarps) {
    ptx::griddepcontrol_wait();
    // Not before the wait: the next kernel may be norm_rope, which reads angles early that a kernel before
    // this one has written.
    ptx::launch_dependents();
    consume<T>(pipeline, shared);
  } else if (warp >= Pipeline::kConsumerWarps + 2) {
    compute_row_scales(pipeline, reinterpret_cast<float*>(shared + (pipeline.scales - pipeline.tokens)),
                       warp - (Pipeline::kConsumerWarps + 2));
  } else if (threadIdx.x % 32 == 0) {
    if (warp == Pipeline::kConsumerWarps)
      pipeline.produce_weights();
    else
      pipeline.produce_tokens();
  }
}

template <class T, int kWarpgroups, int kTokens>
void launch_instance(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream) {
  constexpr auto kKernel = swap_ab_gemm_kernel<T, kWarpgroups, kTokens>;
  const int shared_bytes = SwapAbPipeline<kWarpgroups, kTokens>::shared_bytes(
      params.weight_stages, params.tile_pairs, params.token_stages);
  allow_shared_memory<kKernel>(kSharedBytes, "linear: shared memory");
  const bool scales = params.norm.partial_squares != nullptr;
  const int num_threads = kSwapAbThreads<kWarpgroups, kTokens> - (scales ? 0 : 32 * kScaleWarps<kTokens>);
  launch_dependent<SwapAbGemmParams>(kKernel, static_cast<unsigned>(shape.num_clusters * shape.cluster_size),
                                     num_threads, static_cast<size_t>(shared_bytes), stream, params, "linear",
                                     shape.cluster_size);
}

// Calls visit(warpgroups, tokens), both std::integral_constant, for the instance of this shape.
template <class Visit>
auto visit_instance(const SwapAbGemmShape& shape, const Visit& visit) {
  const auto with_tokens = [&](auto warpgroups) {
    switch (shape.num_tokens) {
      case 32:
        return visit(warpgroups, std::integral_constant<int, 32>{});
      case 64:
        return visit(warpgroups, std::integral_constant<int, 64>{});
      default:
        return visit(warpgroups, std::integral_constant<int, 128>{});
    }
  };
  return shape.num_warpgroups() == 1 ? with_tokens(std::integral_constant<int, 1>{})
                                     : with_tokens(std::integral_constant<int, 2>{});
}

template <class T>
void launch_swap_ab_gemm(const SwapAbGemmParams& params, const SwapAbGemmShape& shape, void* stream) {
  visit_instance(shape, [&](auto warpgroups, auto tokens) {
    launch_instance<T, warpgroups(), tokens()>(params, shape, stream);
  });
}

}  // namespace attend::kernels::cuda::sm90
