// Code shared by skinny GEMMs of all weight formats: the outputs of a CTA, and the reduction of its warps'
// partial sums.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kSkinnyWarps = kKSlices;
inline constexpr int kSkinnyThreads = 32 * kSkinnyWarps;

// Groups of eight rows of W per n-tile: one, or two if their outputs are combined (gate and up, or the halves
// of a head that RoPE rotates together).
__host__ __device__ inline int groups_per_n_tile(const SkinnyGemmParams& params) {
  return params.gated || params.head_half > 0 ? 2 : 1;
}
__host__ __device__ inline int num_n_tiles(const SkinnyGemmParams& params) {
  return params.out_features / (params.head_half > 0 ? 2 * kFeatures : kFeatures);
}
// Returns the first output feature of the n-tile's first group.
__device__ inline int first_feature(const SkinnyGemmParams& params, int n_tile) {
  const int heads_before = params.head_half > 0 ? n_tile / (params.head_half / kFeatures) : 0;
  return n_tile * kFeatures + heads_before * params.head_half;
}

// n-tiles of a CTA. Each pass over x computes `at_once` of them.
struct CtaRange {
  int begin, end, at_once;  // in n-tiles
  int num_k_blocks;         // K-blocks of the inputs, distributed over the warps

  __device__ CtaRange(const SkinnyGemmParams& params, int num_groups, int inputs_per_k_block)
      : at_once(num_groups / groups_per_n_tile(params)),
        num_k_blocks((params.in_features + inputs_per_k_block - 1) / inputs_per_k_block) {
    begin = static_cast<int>(int64_t{num_n_tiles(params)} * blockIdx.x / gridDim.x);
    end = static_cast<int>(int64_t{num_n_tiles(params)} * (blockIdx.x + 1) / gridDim.x);
  }
};

// Epilogue: writes accumulators to out, adds them to its contents, or writes silu(gate) * up.
class SkinnyGemmEpilogue {
 public:
  static constexpr bool kHeads = false, kClusterSync = false;
  // Loaded before the W of a pass; loads issued after it would return late.
  struct Prefetched {
    float before = 0.0f;
  };

  __device__ explicit SkinnyGemmEpilogue(const SkinnyGemmParams& params) : params_(params) {}

  __device__ void prefetch(int token, int n_tile, int row, Prefetched& prefetched) const {
    if (params_.accumulate)
      prefetched.before = load_element(params_.out, at(token, n_tile, row), params_.out_element);
  }
  // Writes output `feature`. sum(group, feature) returns its accumulator; `row` is its row in that group of
  // the n-tile.
  template <class Sum>
  __device__ void write(int token, int n_tile, int row, const Prefetched& prefetched, const Sum& sum) const {
    const int feature = n_tile * kFeatures + row;
    float value = sum(0, feature);
    if (params_.gated) value = value / (1.0f + expf(-value)) * sum(1, params_.out_features + feature);
    if (params_.accumulate) value += prefetched.before;
    store_element(params_.out, at(token, n_tile, row), params_.out_element, value);
  }

 private:
  __device__ int64_t at(int token, int n_tile, int row) const {
    return token * params_.out_stride + n_tile * kFeatures + row;
  }

  const SkinnyGemmParams& params_;
};

// Sum of squares of eight bf16 elements.
__device__ inline float sum_of_squares8(const uint4& x) {
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&x);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    sum += pair.x * pair.x + pair.y * pair.y;
  }
  return sum;
}

// Products, rounded to bf16 once.
__device__ inline uint4 multiply_elements(const uint4& x, const uint4& norm) {
  uint4 product;
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&x);
  const auto* const weights = reinterpret_cast<const __nv_bfloat162*>(&norm);
#pragma unroll
  for (int i = 0; i < 4; ++i) reinterpret_cast<__nv_bfloat162*>(&product)[i] = __hmul2(pairs[i], weights[i]);
  return product;
}

__device__ inline uint4 multiply_elements(const uint4& x, const float2 (&norm)[4]) {
  uint4 product;
  const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    reinterpret_cast<__nv_bfloat162*>(&product)[i] =
        __floats2bfloat162_rn(pair.x * norm[i].x, pair.y * norm[i].y);
  }
  return product;
}

// Outputs of a CTA. The warps' partial sums are always added in the same order, so a row's bits do not depend
// on other rows. `Epilogue`: has the interface of SkinnyGemmEpilogue. With kClusterSync, outputs wait for
// those of the cluster's other CTAs, and each CTA computes its range in one pass.
template <int kGroups, int kTokens, class Epilogue>
class SkinnyOutputs {
 public:
  static constexpr int kGroupOutputs = kTokens * kFeatures;
  // Bytes of the warps' partial sums and sums of squares.
  static constexpr int kPartialSumBytes =
      (kSkinnyWarps * (kGroups * kGroupOutputs + kTokens) * static_cast<int>(sizeof(float)) + 127) / 128 *
      128;

 protected:
  // `shared`: kPartialSumBytes.
  __device__ SkinnyOutputs(const SkinnyGemmParams& params, const Epilogue& epilogue, char* shared,
                           int inputs_per_k_block)
      : params_(params),
        epilogue_(epilogue),
        range_(params, kGroups, inputs_per_k_block),
        partial_(reinterpret_cast<float*>(shared)),
        row_squares_(partial_ + kSkinnyWarps * kGroups * kGroupOutputs) {}

  // Eight threads write a token's outputs of an n-tile, the next eight those of the next token, so that a
  // warp reads contiguous partial sums.
  static constexpr int kNTilesAtOnce = kSkinnyThreads / (kTokens * kFeatures);
  static constexpr int kMaxNTiles = Epilogue::kHeads ? kGroups / 2 : kGroups;
  static constexpr int kOutsPerThread = (kMaxNTiles + kNTilesAtOnce - 1) / kNTilesAtOnce;

  // With many tokens, prefetched values would need registers of the accumulators.
  static constexpr bool kPrefetches = kTokens <= kMaxRowsAnywhere;
  using Prefetched = typename Epilogue::Prefetched[kPrefetches ? kOutsPerThread : 1];

  __device__ __forceinline__ void prefetch(int first_n_tile, Prefetched& prefetched) const {
    if constexpr (kPrefetches)
      for_each_out(first_n_tile, [&](int i, int token, int n_tile, int row) {
        epilogue_.prefetch(token, first_n_tile + n_tile, row, prefetched[i]);
      });
  }
  // Returns 1 without a norm.
  __device__ float get_norm_scale(int token) const {
    if (params_.norm == nullptr) return 1.0f;
    float squares = 0.0f;
    for (int warp = 0; warp < kSkinnyWarps; ++warp) squares += row_squares_[warp * kTokens + token];
    return 1.0f / sqrtf(squares / static_cast<float>(params_.in_features) + params_.norm_eps);
  }
  // get_scale(token) returns the norm's scale.
  template <class Scale>
  __device__ __forceinline__ void write(int first_n_tile, Prefetched& prefetched,
                                        const Scale& get_scale) const {
    if constexpr (Epilogue::kClusterSync) epilogue_.wait_for_cluster();
    for_each_out(first_n_tile, [&](int i, int token, int n_tile, int row) {
      if constexpr (!kPrefetches) epilogue_.prefetch(token, first_n_tile + n_tile, row, prefetched[0]);
      const float scale = get_scale(token);
      const int first_group = n_tile * groups_per_n_tile(params_);
      epilogue_.write(
          token, first_n_tile + n_tile, row, prefetched[kPrefetches ? i : 0],
          [&](int group, int feature) { return add_sums(first_group + group, token, row, scale, feature); });
    });
    if constexpr (Epilogue::kClusterSync) {
      epilogue_.cluster_sync();
      for_each_out(first_n_tile, [&](int i, int token, int n_tile, int row) {
        epilogue_.finish(token, first_n_tile + n_tile, row, prefetched[i]);
      });
    }
  }

 private:
  __device__ float add_sums(int group, int token, int row, float scale, int bias_idx) const {
    float sum = 0.0f;
    for (int warp = 0; warp < kSkinnyWarps; ++warp)
      sum += partial_[(warp * kGroups + group) * kGroupOutputs + token * kFeatures + row];
    const DeviceVector& bias = params_.bias;
    return sum * scale + (bias.data == nullptr ? 0.0f : load_element(bias.data, bias_idx, bias.element));
  }

  // Calls visit(i, token, n_tile, row) for the i-th output of this thread: row `row` of the pass's n-tile
  // `n_tile`.
  template <class Visit>
  __device__ __forceinline__ void for_each_out(int first_n_tile, const Visit& visit) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread % kFeatures, token = thread / kFeatures % kTokens;
    if (token >= params_.num_rows) return;
    const int num_n_tiles = min(range_.at_once, range_.end - first_n_tile);
    int n_tile = thread / (kFeatures * kTokens);
#pragma unroll(kPrefetches ? kOutsPerThread : 1)
    for (int i = 0; i < kOutsPerThread; ++i) {
      if (n_tile < num_n_tiles) visit(i, token, n_tile, row);
      n_tile += kNTilesAtOnce;
    }
  }

 protected:
  const SkinnyGemmParams& params_;
  const Epilogue epilogue_;
  const CtaRange range_;
  float* partial_;      // [warps, groups, tokens, features]
  float* row_squares_;  // [warps, tokens]
  const int warp_ = static_cast<int>(threadIdx.x) / 32, lane_ = static_cast<int>(threadIdx.x) % 32;
};

// Partition of the n-tiles among CTAs.
struct CtaRanges {
  int num_ctas;
  int num_groups;  // groups of the largest range

  explicit CtaRanges(const SkinnyGemmParams& params) {
    num_ctas = std::min(num_n_tiles(params), num_sms());
    num_groups = (num_n_tiles(params) + num_ctas - 1) / num_ctas * groups_per_n_tile(params);
  }
  int num_passes(int groups_at_once) const { return (num_groups + groups_at_once - 1) / groups_at_once; }
};

}  // namespace attend::kernels::cuda::sm80
