// The norm between two products: what one leaves for it, and what the other makes of that.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/gemm/cuda/sm90/dense_ring.cuh"

namespace attend::kernels::cuda::sm90 {

// By warp `warp` of kScaleWarps<kTokens>: what the sums of every row are multiplied with, while others
// multiply. A row's squares are added in an order that does not depend on the rows.
template <int kWarpgroups, int kTokens>
__device__ __forceinline__ void put_scales(const DenseRing<kWarpgroups, kTokens>& ring, float* scales,
                                           int warp) {
  constexpr int kLanes = 32, kRowsAtOnce = 8;
  const BegunNorm& norm = ring.params.norm;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, num_rows = ring.params.num_rows;
  ptx::wait_for_previous_kernel();
  for (int first = warp; first < num_rows; first += kScaleWarps<kTokens> * kRowsAtOnce) {
    float sums[kRowsAtOnce] = {};
#pragma unroll 2
    for (int square = lane * 4; square < norm.num_squares; square += kLanes * 4)
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const int row = first + i * kScaleWarps<kTokens>;
        if (row >= num_rows) break;
        const auto four = *reinterpret_cast<const float4*>(norm.squares + row * norm.stride + square);
        sums[i] += (four.x + four.y) + (four.z + four.w);
      }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      for (int step = kLanes / 2; step > 0; step /= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], step);
      const int row = first + i * kScaleWarps<kTokens>;
      if (lane == 0 && row < num_rows)
        scales[row] = 1.0f / sqrtf(sums[i] / static_cast<float>(norm.num_squares * kPairRows) + norm.eps);
    }
  }
  if (lane == 0) ptx::arrive(ring.scales_full());
}

// Eight features of a token of out, from `feature` on, which lanes l and l ^ 1 write together.
__device__ __forceinline__ void begin_norm(const NextNorm& norm, int token, int feature,
                                           const float (&out)[kGroupElements], const uint4& weight_bits) {
  float weight[kGroupElements], normed[kGroupElements];
  load_16_bit_group(reinterpret_cast<const __nv_bfloat16*>(&weight_bits), weight);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) {
    const float value = rounded(out[i], Element::kBF16);
    squares += value * value;
    normed[i] = value * weight[i];
  }
  store_group(norm.normed, token * norm.normed_stride + feature, Element::kBF16, normed);
  const uint32_t both = 3u << (threadIdx.x % 32 & ~1u);
  squares += __shfl_xor_sync(both, squares, 1);
  if (feature % kPairRows == 0) norm.squares[token * norm.squares_stride + feature / kPairRows] = squares;
}

}  // namespace attend::kernels::cuda::sm90
