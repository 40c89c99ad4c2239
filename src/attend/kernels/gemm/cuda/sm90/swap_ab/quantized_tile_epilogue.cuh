// Epilogue of the scaled quantized GEMM (scaled_quantized.cuh): split-K reduction in the cluster, row scales,
// bias, activation and store.
//
// A consumer thread holds rows l / 4 and l / 4 + 8 of its warp's 16 and tokens 2 (l % 4) and 2 (l % 4) + 1 of
// each group of eight tokens: four accumulators per group. Groups are distributed over the CTAs of the
// cluster in order. A warp sends its values of a group to the warp with the same rows in the group's CTA,
// which adds them from rank 0 on. So no warp waits for another warp of its CTA.
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/cluster_exchange.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_pipeline.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_quantized_kernel.h"

namespace attend::kernels::cuda::sm90 {

// Dequantization defines the factors of the sums: kSumFactor and, with kHasRowScales, the scale of their row
// of W.
template <class T, int kTokens, class Dequantization>
class QuantizedTileEpilogue {
  using Pipeline = SwapAbPipeline<kQuantizedTileWarpgroups, kTokens>;
  static constexpr int kGroupTokens = 8, kGroups = kTokens / kGroupTokens;
  static constexpr int kChunkBytes = 512;  // bytes per warp and group: 16 features of 8 tokens
  static constexpr int kGroupBytes = Pipeline::kConsumerWarps * kChunkBytes;
  static constexpr int kMaxCtaGroups = kGroups / 2;  // groups of a CTA that shares a tile
  static constexpr int kPieces = 4;                  // pieces of eight features per lane at a time
  // With three CTAs, each has up to 6 groups. The extra space is the pipeline's subtile memory, after the
  // partial sums.
  static_assert(kGroups * kGroupBytes == Pipeline::kPartialSumBytes &&
                (kGroups + 2) * kGroupBytes <=
                    Pipeline::kPartialSumBytes + Pipeline::kConsumerWarps * Pipeline::kSubtileBytes);

 public:
  using Accumulators = float[kTokens / 2];

  __device__ __forceinline__ QuantizedTileEpilogue(const Pipeline& pipeline, const QuantizedWeight& weight)
      : pipeline_(pipeline), params_(pipeline.params), weight_(weight) {}

  // Called by all consumers with this CTA's accumulators of a tile of 128 rows, tiles in order. `is_last`:
  // last tile of this CTA.
  __device__ __forceinline__ void exchange_and_write(int tile, const Accumulators& accumulators,
                                                     bool is_last) {
    look_up();
    const RowFactors row_factors{tile_factors(tile), tile_biases(tile)};
    if (cluster_size_ == 1) {
      __syncwarp();  // the previous tile has been read
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        stage(group, row_factors,
              make_float4(accumulators[4 * group], accumulators[4 * group + 1], accumulators[4 * group + 2],
                          accumulators[4 * group + 3]));
    } else {
      send(accumulators);
      ptx::mbarrier_wait_cluster(pipeline_.partials_full(), parity_);
      add_and_stage(row_factors);
    }
    __syncwarp();
    write(tile);
    if (cluster_size_ > 1 && !is_last) {
      __syncwarp();
      if (lane() < cluster_size_)
        ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(pipeline_.partials_empty(), lane()));
    }
    parity_ ^= 1;
    first_ = false;
  }

 private:
  // Recomputed for each tile: these values are not kept in registers while consumers multiply.
  __device__ __forceinline__ void look_up() {
    thread_ = static_cast<int>(threadIdx.x);
    cluster_size_ = params_.cluster_size;
    rank_ = pipeline_.range.rank;
    asm volatile("" : "+r"(thread_), "+r"(cluster_size_), "+r"(rank_));
  }

  __device__ __forceinline__ int warp() const { return thread_ / 32; }
  __device__ __forceinline__ int lane() const { return thread_ % 32; }
  // Returns the CTA that writes a group; first_group() returns the first group of a CTA.
  __device__ __forceinline__ int owner(int group) const { return group * cluster_size_ / kGroups; }
  __device__ __forceinline__ int first_group(int rank) const {
    return (kGroups * rank + cluster_size_ - 1) / cluster_size_;
  }
  __device__ __forceinline__ int num_cta_groups() const {
    return first_group(rank_ + 1) - first_group(rank_);
  }
  // Returns the number of groups per rank for which space is reserved.
  __device__ __forceinline__ int max_cta_groups() const { return first_group(1); }
  // Returns this warp's chunk of a group.
  __device__ __forceinline__ uint32_t chunk(int group) const {
    return pipeline_.partials + group * kGroupBytes + warp() * kChunkBytes;
  }

  // Factors and biases of a lane's two rows of W: sums are multiplied by the factor, then the bias is added.
  struct RowFactors {
    float2 factors, biases;
  };
  __device__ __forceinline__ float2 tile_biases(int tile) const {
    const DeviceVector& bias = params_.bias;
    const int feature = first_feature(tile) + lane() / 4;
    if (bias.data == nullptr || feature >= params_.out_features) return {};
    return {load_element(bias.data, feature, bias.element),
            load_element(bias.data, feature + partner_row(), bias.element)};
  }
  __device__ __forceinline__ float2 tile_factors(int tile) const {
    const int feature = first_feature(tile) + lane() / 4;
    if (!Dequantization::kHasRowScales || feature >= params_.out_features)
      return {Dequantization::kSumFactor, Dequantization::kSumFactor};
    return {load_scale(weight_, row_scales_begin(weight_, feature)),
            load_scale(weight_, row_scales_begin(weight_, feature + partner_row()))};
  }
  // Distance from a lane's first row to its second one.
  __device__ __forceinline__ int partner_row() const {
    return params_.gated ? params_.out_features : kGroupElements;
  }
  // Returns the first feature of this warp.
  __device__ __forceinline__ int first_feature(int tile) const {
    return (tile * Pipeline::kConsumerWarps + warp()) * (params_.gated ? kPairRows / 2 : kPairRows);
  }

  __device__ __forceinline__ void send(const Accumulators& accumulators) const {
    if (threadIdx.x == 0)
      ptx::mbarrier_arrive_expect_tx(pipeline_.partials_full(),
                                     (cluster_size_ - 1) * num_cta_groups() * kGroupBytes);
    if (!first_) ptx::mbarrier_wait_cluster(pipeline_.partials_empty(), parity_ ^ 1);
    const uint32_t from_rank = chunk(rank_ * max_cta_groups()) + lane() * 16;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int to_rank = owner(group);
      const uint32_t to = from_rank + (group - first_group(to_rank)) * kGroupBytes;
      const float* const sums = accumulators + 4 * group;
      if (to_rank == rank_)
        ptx::st_shared_16(to, sums[0], sums[1], sums[2], sums[3]);
      else
        ptx::st_async_16(ptx::mapa(to, to_rank), sums[0], sums[1], sums[2], sums[3],
                         ptx::mapa(pipeline_.partials_full(), to_rank));
    }
    __syncwarp();
  }

  __device__ __forceinline__ void add_and_stage(const RowFactors& row_factors) const {
    float4 sums[kMaxCtaGroups] = {};
#pragma unroll 1
    for (int rank = 0; rank < cluster_size_; ++rank)
#pragma unroll
      for (int group = 0; group < kMaxCtaGroups; ++group)
        if (group < num_cta_groups()) {
          const uint4 bits = ptx::ld_shared_16(chunk(rank * max_cta_groups() + group) + lane() * 16);
          sums[group].x += __uint_as_float(bits.x);
          sums[group].y += __uint_as_float(bits.y);
          sums[group].z += __uint_as_float(bits.z);
          sums[group].w += __uint_as_float(bits.w);
        }
    __syncwarp();  // the chunks of rank 0 are free
#pragma unroll
    for (int group = 0; group < kMaxCtaGroups; ++group)
      if (group < num_cta_groups()) stage(group, row_factors, sums[group]);
  }

  // Returns the address of eight features of a token. A chunk has a line of 128 bytes for two tokens.
  // `eighth` is swizzled so that neither the writing nor the reading lanes have bank conflicts.
  __device__ __forceinline__ uint32_t place(int group, int line, int eighth) const {
    return chunk(group) + line * 128 + (eighth ^ line) * 32;
  }

  // Stores four results of a lane at the addresses that write() reads.
  __device__ __forceinline__ void stage(int group, const RowFactors& row_factors, const float4& sums) const {
    const int line = lane() % 4, feature = lane() / 4 * 4;
    // Factors and biases of the two rows.
    const auto& [factors, biases] = row_factors;
    const float2 low{fmaf(sums.x, factors.x, biases.x), fmaf(sums.y, factors.x, biases.x)},
        high{fmaf(sums.z, factors.y, biases.y), fmaf(sums.w, factors.y, biases.y)};
    if (params_.gated) {
      ptx::st_shared_4(place(group, line, 0) + feature, gated(low.x, high.x));
      ptx::st_shared_4(place(group, line, 2) + feature, gated(low.y, high.y));
    } else {
      ptx::st_shared_4(place(group, line, 0) + feature, low.x);
      ptx::st_shared_4(place(group, line, 2) + feature, low.y);
      ptx::st_shared_4(place(group, line, 1) + feature, high.x);
      ptx::st_shared_4(place(group, line, 3) + feature, high.y);
    }
  }
  __device__ static float gated(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

  // Eight features of a token.
  struct Piece {
    int group, token, half;  // group and token within this CTA
  };
  __device__ __forceinline__ Piece piece(int i) const {
    if (params_.gated) return {.group = 4 * i + lane() / 8, .token = lane() % 8, .half = 0};
    return {.group = 2 * i + lane() / 16, .token = lane() % 16 / 2, .half = lane() % 2};
  }

  // Returns the output offset of a piece, or -1 for none.
  __device__ __forceinline__ int64_t to(int tile, const Piece& of) const {
    const int token = (first_group(rank_) + of.group) * kGroupTokens + of.token,
              feature = first_feature(tile) + of.half * kGroupElements;
    if (of.group >= num_cta_groups() || token >= params_.num_rows || feature >= params_.out_features)
      return -1;
    return token * params_.out_stride + feature;
  }

  // Kept small in code size, since it runs once.
  __device__ __forceinline__ void write(int tile) const {
    const bool aligned = params_.out_aligned &&
                         params_.out_element == (std::is_same_v<T, __half> ? Element::kF16 : Element::kBF16);
    const int num_pieces = params_.gated ? (num_cta_groups() + 3) / 4 : (num_cta_groups() + 1) / 2;
#pragma unroll 1
    for (int i = 0; i < num_pieces; i += kPieces)
      if (aligned)
        write_16_bit(tile, i);
      else
        for (int j = 0; j < kPieces; ++j) write_some(tile, piece(i + j));
  }

  // Writes kPieces pieces from `first`. Their previous contents of out are loaded together.
  __device__ __forceinline__ void write_16_bit(int tile, int first) const {
    T* const out = static_cast<T*>(params_.out);
    int64_t at[kPieces];
    uint4 before[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      at[i] = to(tile, piece(first + i));
      if (params_.accumulate && at[i] >= 0) before[i] = *reinterpret_cast<const uint4*>(out + at[i]);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (at[i] < 0) continue;
      float group[kGroupElements], more[kGroupElements];
      read(piece(first + i), group);
      if (params_.accumulate) {
        convert_16_bit_group<T>(before[i], more);
        add(group, more);
      }
      store_16_bit_group(out + at[i], group);
    }
  }

  __device__ __forceinline__ void write_some(int tile, const Piece& of) const {
    const int64_t at = to(tile, of);
    if (at < 0) return;
    float group[kGroupElements], before[kGroupElements];
    read(of, group);
    if (params_.accumulate) {
      load_some(params_.out, at, params_.out_element, kGroupElements, before);
      add(group, before);
    }
    store_some(params_.out, at, params_.out_element, kGroupElements, group);
  }

  __device__ __forceinline__ void read(const Piece& of, float (&group)[kGroupElements]) const {
    const uint32_t from = place(of.group, of.token / 2, of.token % 2 * 2 + of.half);
#pragma unroll
    for (int i = 0; i < kGroupElements; i += 4) {
      const uint4 four = ptx::ld_shared_16(from + 4 * i);
      group[i] = __uint_as_float(four.x);
      group[i + 1] = __uint_as_float(four.y);
      group[i + 2] = __uint_as_float(four.z);
      group[i + 3] = __uint_as_float(four.w);
    }
  }
  __device__ static void add(float (&group)[kGroupElements], const float (&added)[kGroupElements]) {
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] += added[i];
  }

  const Pipeline& pipeline_;
  const SwapAbGemmParams& params_;
  const QuantizedWeight& weight_;
  int thread_, cluster_size_, rank_;
  uint32_t parity_ = 0;  // parity of this tile's exchange
  bool first_ = true;
};

}  // namespace attend::kernels::cuda::sm90
