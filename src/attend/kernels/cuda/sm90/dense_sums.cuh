// The sums of a tile: summed up with those of other CTAs, and written as results.
#pragma once

#include <cstdint>

#include "attend/kernels/cuda/element_group.cuh"
#include "attend/kernels/cuda/ptx/thread.cuh"
#include "attend/kernels/cuda/sm90/dense_ring.cuh"

namespace attend::kernels::cuda::sm90 {

// A thread of a consumer holds rows l / 4 and l / 4 + 8 of its warp's 16, and of each group of eight tokens
// 2 (l % 4) and the next: four sums a group (wgmma_products.cuh.in). Gated, the two rows are gate and up of
// one feature.
template <int kWarpgroups, int kTokens>
class DenseSums {
  using Ring = DenseRing<kWarpgroups, kTokens>;
  static constexpr int kGroups = kTokens / 8;
  static constexpr int kThreads = kWarpgroups * 128;
  static constexpr int kTileRows = kWarpgroups * kWarpgroupRows;
  // Of parts: as many as registers can take beside the sums.
  static constexpr int kGroupsAtOnce = kTokens == 32 ? 4 : 8;

 public:
  using Sums = float[kTokens / 2];

  // `shared`: that of the ring.
  __device__ __forceinline__ DenseSums(const DenseParams& params, char* shared)
      : params_(params),
        stage_(reinterpret_cast<float*>(shared + Ring::stage_offset(params.weight_slots)) +
               static_cast<int>(threadIdx.x) / 32 * Ring::kStageFloats),
        is_last_(reinterpret_cast<int*>(shared + Ring::shared_bytes(params.weight_slots)) - 1) {}

  // The sums of all of a tile, or of units [begin, end) of one that other CTAs have the rest of.
  __device__ __forceinline__ void put(int tile, int begin, int end, Sums& sums) const {
    const DenseShares& shares = params_.shares;
    const int tile_begin = tile * shares.num_chunks;
    if (end - begin < shares.num_chunks && !sum_up(tile, tile_begin, begin > tile_begin, sums)) return;
    if (params_.gated)
      write_gated(tile, sums);
    else
      write(tile, sums);
  }

 private:
  // Whether this CTA's was the last part of the tile; then `sums` are those of all parts, in order.
  __device__ __forceinline__ bool sum_up(int tile, int tile_begin, bool begins_inside, Sums& sums) const {
    const DenseShares& shares = params_.shares;
    const int first = cta_of_unit(shares, tile_begin),
              last = cta_of_unit(shares, tile_begin + shares.num_chunks - 1);
    float4* const part = part_of(static_cast<int>(blockIdx.x), begins_inside);
    constexpr int kStep = 8 * kGroupsAtOnce;
    const int num_groups = (params_.num_rows + kStep - 1) / kStep * kGroupsAtOnce;
#pragma unroll
    for (int i = 0; i < kGroups; ++i)
      if (i < num_groups)
        part[i * kThreads] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    __threadfence();
    synchronize_consumers();
    if (threadIdx.x == 0) {
      *is_last_ = atomicAdd(&params_.counters[tile], 1) == last - first;
      if (*is_last_ != 0) params_.counters[tile] = 0;
      __threadfence();
    }
    synchronize_consumers();
    if (*is_last_ == 0) return false;
#pragma unroll
    for (int i = 0; i < kGroups; i += kGroupsAtOnce) {
      if (i >= num_groups) continue;
      float4 totals[kGroupsAtOnce] = {};
#pragma unroll 1
      for (int cta = first; cta <= last; ++cta) {
        const float4* const other = part_of(cta, share_begin(shares, cta) > tile_begin) + i * kThreads;
#pragma unroll
        for (int j = 0; j < kGroupsAtOnce; ++j) {
          const float4 four = __ldcg(other + j * kThreads);
          totals[j].x += four.x;
          totals[j].y += four.y;
          totals[j].z += four.z;
          totals[j].w += four.w;
        }
      }
#pragma unroll
      for (int j = 0; j < kGroupsAtOnce; ++j) {
        sums[4 * (i + j)] = totals[j].x;
        sums[4 * (i + j) + 1] = totals[j].y;
        sums[4 * (i + j) + 2] = totals[j].z;
        sums[4 * (i + j) + 3] = totals[j].w;
      }
    }
    return true;
  }

  // This thread's sums in the part that a CTA has of its first tile (when it begins inside of it) or of its
  // last one.
  __device__ __forceinline__ float4* part_of(int cta, bool begins_inside) const {
    constexpr int64_t kPartFloats = kTileRows * kTokens;
    return reinterpret_cast<float4*>(params_.partials + (2 * cta + (begins_inside ? 0 : 1)) * kPartFloats) +
           threadIdx.x;
  }

  __device__ static void synchronize_consumers() { ptx::synchronize_threads<1, kThreads>(); }

  // The warp's 16 features of 16 tokens at a time.
  __device__ __forceinline__ void write(int tile, const Sums& sums) const {
    constexpr int kStride = 20;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int feature = tile * kTileRows + warp * 16 + lane % 2 * 8;
    const bool valid = feature < params_.out_features;
    float bias[kGroupElements] = {};
    if (valid && params_.bias.data != nullptr)
      load_some(params_.bias.data, feature, params_.bias.element, kGroupElements, bias);
#pragma unroll
    for (int pair = 0; pair < kGroups / 2; ++pair) {
      if (pair * 16 >= params_.num_rows) continue;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 % 2 * 8;
        stage_[token * kStride + row] = sums[pair * 8 + i];
      }
      __syncwarp();
      const int token = pair * 16 + lane / 2;
      if (!valid || token >= params_.num_rows) continue;
      float group[kGroupElements];
      read_stage(lane / 2 * kStride + lane % 2 * 8, group);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] += bias[i];
      put_group(token, feature, group);
    }
  }

  // The warp's 8 features of 32 tokens at a time.
  __device__ __forceinline__ void write_gated(int tile, const Sums& sums) const {
    constexpr int kStride = 12;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int feature = tile * (kTileRows / 2) + warp * 8;
    if (feature >= params_.out_features) return;
    float gate_bias = 0.0f, up_bias = 0.0f;
    if (params_.bias.data != nullptr) {
      gate_bias = load_element(params_.bias.data, feature + lane / 4, params_.bias.element);
      up_bias =
          load_element(params_.bias.data, params_.out_features + feature + lane / 4, params_.bias.element);
    }
#pragma unroll
    for (int four = 0; four < kGroups / 4; ++four) {
      if (four * 32 >= params_.num_rows) continue;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int token = i / 2 * 8 + lane % 4 * 2 + i % 2, sum = four * 16 + i / 2 * 4 + i % 2;
        const float gate = sums[sum] + gate_bias;
        stage_[token * kStride + lane / 4] = gate / (1.0f + expf(-gate)) * (sums[sum + 2] + up_bias);
      }
      __syncwarp();
      const int token = four * 32 + lane;
      if (token >= params_.num_rows) continue;
      float group[kGroupElements];
      read_stage(lane * kStride, group);
      put_group(token, feature, group);
    }
  }

  __device__ __forceinline__ void read_stage(int from, float (&group)[kGroupElements]) const {
    const auto* const fours = reinterpret_cast<const float4*>(stage_ + from);
    const float4 low = fours[0], high = fours[1];
    const float values[kGroupElements] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] = values[i];
  }

  __device__ __forceinline__ void put_group(int token, int feature, float (&group)[kGroupElements]) const {
    const int64_t to = token * params_.out_stride + feature;
    if (params_.accumulate) {
      float before[kGroupElements];
      if (params_.out_aligned)
        load_group(params_.out, to, params_.out_element, before);
      else
        load_some(params_.out, to, params_.out_element, kGroupElements, before);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] += before[i];
    }
    if (params_.out_aligned)
      store_group(params_.out, to, params_.out_element, group);
    else
      store_some(params_.out, to, params_.out_element, kGroupElements, group);
  }

  const DenseParams& params_;
  float* stage_;  // of this warp
  int* is_last_;
};

}  // namespace attend::kernels::cuda::sm90
