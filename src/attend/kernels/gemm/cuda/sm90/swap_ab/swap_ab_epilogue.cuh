// Epilogue of the swap-AB GEMM: exchanges, adds and writes a cluster's partial sums.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/gemm/cuda/sm90/deferred_norm.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_pipeline.cuh"

namespace attend::kernels::cuda::sm90 {

// Epilogue: split-K reduction in the cluster, scale, bias, activation and store. A consumer thread holds rows
// l / 4 and l / 4 + 8 of its warp's 16 and tokens 2 (l % 4) and 2 (l % 4) + 1 of each group of eight tokens:
// four accumulators per group (wgmma_products.cuh.in). If gated, the two rows are gate and up of one feature.
// A subtile is two groups of a warp. Subtiles are distributed over the CTAs of the cluster. Their warps add
// the partial sums from rank 0 on and write the results.
template <int kWarpgroups, int kTokens>
class SwapAbEpilogue {
  using Pipeline = SwapAbPipeline<kWarpgroups, kTokens>;
  static constexpr int kWarps = Pipeline::kConsumerWarps;
  static constexpr int kColumns = kTokens / 16;  // columns of subtiles
  static constexpr int kFloatsPerLane = 8;       // per subtile
  static constexpr int kHalfSubtileBytes = 512;  // four floats of 32 lanes

  // Output position of a subtile.
  struct Origin {
    int row, token;  // the first of 16; if gated, `row` counts rows of gate and up
  };
  // Previous contents of out, and the next norm's weights, for a lane's half of a subtile row.
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

  // Prefetches the inputs of each warp's first subtile. Called by all consumers before the K-blocks of a
  // tile, since loads issued after those would return late.
  __device__ __forceinline__ void prefetch(int tile) {
    if (first_subtile() < num_subtiles()) prefetched_ = load_prefetched(tile, first_subtile());
  }

  // Called by all consumers with this CTA's accumulators of a tile, tiles in order. `is_last`: last tile of
  // this CTA.
  __device__ __forceinline__ void exchange_and_write(int tile, const Accumulators& accumulators,
                                                     bool is_last) {
    const bool is_single_cta = params_.cluster_size == 1;
    if (is_single_cta) {
      store_without_cluster(accumulators);
      __syncwarp();
    } else {
      send_partials(accumulators);
      ptx::mbarrier_wait_cluster(pipeline_.partials_full(), parity_);
    }
    if (params_.norm.partial_squares != nullptr) ptx::mbarrier_wait(pipeline_.scales_full(), 0);
    const int step = is_single_cta ? params_.tile_pairs : kWarps << params_.cluster_shift;
    for (int subtile = first_subtile(); subtile < num_subtiles(); subtile += step)
      write(tile, subtile, subtile == first_subtile() ? prefetched_ : load_prefetched(tile, subtile));
    __syncwarp();
    if (!is_single_cta && !is_last && lane_ < params_.cluster_size)
      ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(pipeline_.partials_empty(), lane_));
    parity_ ^= 1;
    first_ = false;
  }

 private:
  // Returns true if this warp's rows are part of the tile.
  __device__ __forceinline__ bool has_rows() const { return warp_ < params_.tile_pairs; }
  // Returns the number of subtile columns with tokens, at least kMinColumns.
  __device__ __forceinline__ int num_columns_used() const {
    return max(kMinColumns, (params_.num_rows + 15) / 16);
  }

  __device__ __forceinline__ int num_subtiles() const { return num_columns_used() * params_.tile_pairs; }
  // Returns the first subtile that this warp writes.
  __device__ __forceinline__ int first_subtile() const {
    if (params_.cluster_size == 1 && !has_rows()) return num_subtiles();
    return (warp_ << params_.cluster_shift) + pipeline_.range.rank;
  }
  __device__ __forceinline__ Origin find_origin(int tile, int subtile) const {
    const int column = subtile / params_.tile_pairs, pair = subtile - column * params_.tile_pairs;
    return {.row = (tile * params_.tile_pairs + pair) * kPairRows, .token = column * 16};
  }

  // Returns the address of this lane's floats of a subtile from the CTA of a rank, in the CTA that writes the
  // subtile.
  __device__ __forceinline__ uint32_t partial_address(int subtile, int rank) const {
    return pipeline_.partials +
           2 * kHalfSubtileBytes * ((subtile >> params_.cluster_shift << params_.cluster_shift) + rank) +
           16 * lane_;
  }

  // Without a cluster, a warp writes its own subtiles.
  __device__ __forceinline__ void store_without_cluster(const Accumulators& accumulators) const {
    if (!has_rows()) return;
#pragma unroll
    for (int column = 0; column < kColumns; ++column)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = column * kFloatsPerLane + half * 4;
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
        const int first = column * kFloatsPerLane + half * 4;
        ptx::st_async_16(to + half * kHalfSubtileBytes, accumulators[first], accumulators[first + 1],
                         accumulators[first + 2], accumulators[first + 3], full);
      }
    }
  }

  // Writes a subtile; called by one warp.
  __device__ __forceinline__ void write(int tile, int subtile, const Prefetched& prefetched) const {
    float accumulators[kFloatsPerLane] = {};
    for (int rank = 0; rank < params_.cluster_size; ++rank)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 bits = ptx::ld_shared_16(partial_address(subtile, rank) + half * kHalfSubtileBytes);
        accumulators[half * 4] += __uint_as_float(bits.x);
        accumulators[half * 4 + 1] += __uint_as_float(bits.y);
        accumulators[half * 4 + 2] += __uint_as_float(bits.z);
        accumulators[half * 4 + 3] += __uint_as_float(bits.w);
      }
    const Origin origin = find_origin(tile, subtile);
    if (params_.norm.partial_squares != nullptr)
#pragma unroll
      for (int i = 0; i < kFloatsPerLane; ++i) accumulators[i] *= scales_[origin.token + lane_token(i)];
    if (params_.gated)
      write_gated(origin, accumulators);
    else
      write_plain(origin, accumulators, prefetched);
  }

  // Writes 16 features of 16 tokens, half a row of the subtile per lane.
  __device__ __forceinline__ void write_plain(const Origin& origin,
                                              const float (&accumulators)[kFloatsPerLane],
                                              const Prefetched& prefetched) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFloatsPerLane; ++i)
      subtile_[lane_token(i) * Pipeline::kSubtileStride + lane_ / 4 + i / 2 % 2 * 8] = accumulators[i];
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

  // Writes 8 features of 16 tokens. Each lane has both gate and up. 16 lanes write a row of the subtile each.
  __device__ __forceinline__ void write_gated(const Origin& origin,
                                              const float (&accumulators)[kFloatsPerLane]) const {
    const int feature = origin.row / 2;
    if (feature >= params_.out_features) return;
    float gate_bias = 0.0f, up_bias = 0.0f;
    if (const DeviceVector& bias = params_.bias; bias.data != nullptr) {
      gate_bias = load_element(bias.data, feature + lane_ / 4, bias.element);
      up_bias = load_element(bias.data, params_.out_features + feature + lane_ / 4, bias.element);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFloatsPerLane; ++i) {
      if (i / 2 % 2 == 1) continue;  // up
      const float gate = accumulators[i] + gate_bias;
      subtile_[lane_token(i) * Pipeline::kSubtileStride + lane_ / 4] =
          gate / (1.0f + expf(-gate)) * (accumulators[i + 2] + up_bias);
    }
    __syncwarp();
    const int token = origin.token + lane_;
    if (lane_ >= 16 || !is_out(token, feature)) return;
    float group[kGroupElements];
    read_subtile(lane_, 0, group);
    put_group(token, feature, group);
  }

  // Returns the token in the subtile of float i of this lane.
  __device__ __forceinline__ int lane_token(int i) const { return i / 4 * 8 + lane_ % 4 * 2 + i % 2; }

  __device__ bool is_out(int token, int feature) const {
    return token < params_.num_rows && feature < params_.out_features;
  }
  __device__ int64_t out_at(int token, int feature) const { return token * params_.out_stride + feature; }

  // Reads eight features of a row of the subtile, starting at `column`.
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

  // Returns true if the contents of out are prefetched.
  __device__ __forceinline__ bool prefetches_out() const {
    return params_.accumulate && params_.out_aligned && params_.out_element != Element::kF32;
  }
  __device__ __forceinline__ Prefetched load_prefetched(int tile, int subtile) const {
    Prefetched prefetched{};
    const Origin origin = find_origin(tile, subtile);
    const int token = origin.token + lane_ / 2, feature = origin.row + lane_ % 2 * 8;
    if (params_.gated || !is_out(token, feature)) return prefetched;
    if (prefetches_out()) prefetched.before = load_16_bytes(params_.out, out_at(token, feature));
    if (params_.next_norm.weight != nullptr)
      prefetched.norm_weight = load_16_bytes(params_.next_norm.weight, feature);
    return prefetched;
  }
  // Loads eight 16-bit elements.
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
  uint32_t parity_ = 0;  // parity of this tile's exchange
  bool first_ = true;
};

}  // namespace attend::kernels::cuda::sm90
