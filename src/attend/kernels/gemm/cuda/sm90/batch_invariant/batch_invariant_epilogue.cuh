// Epilogue of the batch-invariant GEMM on sm_90a: bias, SiLU or accumulation into out, rounding, stores. A
// thread of a warpgroup holds rows l / 4 and l / 4 + 8 of its warp's 16 rows and, for every eight rows of W,
// rows 2 (l % 4) and 2 (l % 4) + 1 (wgmma_products.cuh.in). The four lanes of a row exchange values so that
// each stores eight features: 16 bytes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/gemm/cuda/sm90/batch_invariant/batch_invariant_gemm_kernel.h"

namespace attend::kernels::cuda::sm90 {

template <int kTileFeatures>
class BatchInvariantEpilogue {
  static constexpr int kFeatures = 8;                        // per group
  static constexpr int kGroups = kTileFeatures / kFeatures;  // groups of rows of W

 public:
  using Totals = float[kTileFeatures / 2];

  // Constructs the epilogue for the tile that starts at `row` of x and `weight_row` of W.
  __device__ __forceinline__ BatchInvariantEpilogue(const BatchInvariantGemmParams& params, int row,
                                                    int weight_row)
      : params_(params),
        row_(row + static_cast<int>(threadIdx.x) / 32 * 16 + lane_ / 4),
        weight_row_(weight_row) {}

  __device__ __forceinline__ void write(Totals& totals) const {
    if (params_.bias.data != nullptr) add_bias(totals);
    if (params_.gated) gate(totals);
    if (params_.out_in_groups)
      write_groups(totals);
    else
      write_pairs(totals);
  }

 private:
  static constexpr int kColumnQuads = (kGroups + 3) / 4;

  // Returns the first of this lane's two rows of W of a group. If gated, groups of gate and of up alternate,
  // and the up rows of W follow after all gate rows.
  __device__ __forceinline__ int group_weight_row(int group) const {
    if (!params_.gated) return weight_row_ + group * kFeatures + lane_ % 4 * 2;
    return group % 2 * params_.out_features + weight_row_ / 2 + group / 2 * kFeatures + lane_ % 4 * 2;
  }
  __device__ __forceinline__ void add_bias(Totals& totals) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int weight_row = group_weight_row(group) + i;
        if (weight_row >= params_.num_weight_rows) continue;
        const float bias = load_element(params_.bias.data, weight_row, params_.bias.element);
        totals[4 * group + i] += bias;
        totals[4 * group + 2 + i] += bias;
      }
  }
  // Computes silu(gate) * up like the skinny GEMM. Group g of the output overwrites the totals of group g of
  // W.
  __device__ __forceinline__ void gate(Totals& totals) const {
#pragma unroll
    for (int group = 0; group < kGroups / 2; ++group)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float gate = totals[8 * group + i], up = totals[8 * group + 4 + i];
        totals[4 * group + i] = gate / (1.0f + expf(-gate)) * up;
      }
  }

  __device__ __forceinline__ int num_groups() const { return params_.gated ? kGroups / 2 : kGroups; }
  __device__ __forceinline__ int group_feature(int group) const {
    return (params_.gated ? weight_row_ / 2 : weight_row_) + group * kFeatures;
  }

  // Returns the address of this lane's group of the row, or of the row eight below.
  __device__ __forceinline__ uint4* staging_address(int group, int high) const {
    const int row = row_ + 8 * high, feature = group_feature(group);
    if (row >= params_.num_rows || group >= num_groups() || feature >= params_.out_features) return nullptr;
    return reinterpret_cast<uint4*>(static_cast<uint16_t*>(params_.out) + row * params_.out_stride + feature);
  }

  // Lane q of four stores group q of each four. The contents of out are loaded two groups of four ahead.
  __device__ __forceinline__ void write_groups(const Totals& totals) const {
    uint4 before[kColumnQuads][2] = {};
    const auto load = [&](int quad) {
#pragma unroll
      for (int high = 0; high < 2; ++high)
        if (const uint4* const from = staging_address(4 * quad + lane_ % 4, high); from != nullptr)
          before[quad][high] = *from;
    };
    if (params_.accumulate) {
      load(0);
      if (kColumnQuads > 1) load(1);
    }
#pragma unroll
    for (int quad = 0; quad < kColumnQuads; ++quad) {
      if (4 * quad >= num_groups()) break;
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        uint32_t held[4] = {before[quad][high].x, before[quad][high].y, before[quad][high].z,
                            before[quad][high].w};
        uint32_t words[4] = {};
        if (params_.accumulate) transpose(held);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int group = 4 * quad + i;
          if (group >= kGroups) break;
          float pair[2] = {totals[4 * group + 2 * high], totals[4 * group + 2 * high + 1]};
          if (params_.accumulate) add(held[i], pair);
          words[i] = packed(pair);
        }
        transpose(words);
        uint4* const to = staging_address(4 * quad + lane_ % 4, high);
        if (to != nullptr) *to = make_uint4(words[0], words[1], words[2], words[3]);
      }
      if (quad + 2 < kColumnQuads && params_.accumulate) load(quad + 2);
    }
  }

  // Writes two neighboring features at a time, with or without alignment.
  __device__ __forceinline__ void write_pairs(const Totals& totals) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group >= num_groups()) break;
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int row = row_ + 8 * high, feature = group_feature(group) + lane_ % 4 * 2;
        if (row >= params_.num_rows) continue;
        const int64_t to = row * params_.out_stride + feature;
        const float* const pair = totals + 4 * group + 2 * high;
        if (params_.out_in_pairs && feature + 1 < params_.out_features) {
          float2* const out = reinterpret_cast<float2*>(static_cast<float*>(params_.out) + to);
          const float2 before = params_.accumulate ? *out : float2{};
          *out = params_.accumulate ? make_float2(pair[0] + before.x, pair[1] + before.y)
                                    : make_float2(pair[0], pair[1]);
          continue;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (feature + i < params_.out_features) write_element(to + i, pair[i]);
      }
    }
  }
  __device__ __forceinline__ void write_element(int64_t to, float value) const {
    if (params_.out_element == Element::kF32) {
      float* const out = static_cast<float*>(params_.out) + to;
      *out = params_.accumulate ? value + *out : value;
      return;
    }
    uint16_t* const out = static_cast<uint16_t*>(params_.out) + to;
    float pair[2] = {value, 0.0f};
    if (params_.accumulate) add(*out, pair);
    *out = static_cast<uint16_t>(packed(pair));
  }

  // Exchanges words: word i of lane q of four becomes word q of lane i.
  __device__ __forceinline__ void transpose(uint32_t (&words)[4]) const {
    const auto exchange = [&](uint32_t& low, uint32_t& high, int step) {
      const bool upper = (lane_ & step) != 0;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? low : high, step);
      (upper ? low : high) = got;
    };
    exchange(words[0], words[1], 1);
    exchange(words[2], words[3], 1);
    exchange(words[0], words[2], 2);
    exchange(words[1], words[3], 2);
  }

  __device__ __forceinline__ void add(uint32_t held, float (&pair)[2]) const {
    float2 values;
    if (params_.out_element == Element::kBF16)
      values = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&held));
    else
      values = __half22float2(*reinterpret_cast<const __half2*>(&held));
    pair[0] += values.x;
    pair[1] += values.y;
  }
  __device__ __forceinline__ uint32_t packed(const float (&pair)[2]) const {
    if (params_.out_element == Element::kBF16) {
      const __nv_bfloat162 rounded = __floats2bfloat162_rn(pair[0], pair[1]);
      return *reinterpret_cast<const uint32_t*>(&rounded);
    }
    const __half2 rounded = __floats2half2_rn(pair[0], pair[1]);
    return *reinterpret_cast<const uint32_t*>(&rounded);
  }

  const BatchInvariantGemmParams& params_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int row_, weight_row_;
};

}  // namespace attend::kernels::cuda::sm90
