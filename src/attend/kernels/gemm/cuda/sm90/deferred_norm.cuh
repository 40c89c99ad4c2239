// Both ends of an RMSNorm that a GEMM defers to the next one: sums of squares in the epilogue of the first,
// scales in the second.
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/gemm/cuda/sm90/swap_ab/swap_ab_pipeline.cuh"

namespace attend::kernels::cuda::sm90 {

// Computes the scale of every row under a deferred RMSNorm of x, in warp `warp` of kScaleWarps<kTokens> while
// other warps multiply. A row's partial sums of squares are added in an order that does not depend on other
// rows.
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

// Defers the RMSNorm of out to the next GEMM: writes out * weight and the partial sum of squares for eight
// features of a token, starting at `feature`. Lanes l and l ^ 1 share a sum.
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

}  // namespace attend::kernels::cuda::sm90
