// First half of low-rank adapters: A x for the tokens of each segment, with its adapter, on mma.sync.
//
//   tile        kRowTiles * 16 tokens of a segment x 48 rows of A per pass, a K-block of 512
//   warps       4: each multiplies 128 inputs with mma.m16n8k16, without shared memory: a lane loads the 16
//               bytes of its fragments of two products, whose inputs are in another order, from L2; the sums
//               of the warps are then added in order
//   registers   at most 168 with one row tile (3 CTAs per SM), 255 with four (2)
//   shared      sums of the warps: 12 KB per row tile
//   bytes       x once per 48 rows of A, A once per segment, parts of A x per K-block
//   bound       reading A with few tokens, x with many
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/low_rank_step.cuh"

namespace attend::kernels::cuda::sm80 {

// Eight neighboring inputs, or zeros after the last one.
template <class T>
__device__ __forceinline__ uint4 load_inputs(const T* row, int k, int in_features, bool aligned) {
  if (aligned && k + 8 <= in_features) return *reinterpret_cast<const uint4*>(row + k);
  uint4 bits = make_uint4(0, 0, 0, 0);
  T* const values = reinterpret_cast<T*>(&bits);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (k + i < in_features) values[i] = row[k + i];
  return bits;
}

template <class T, int kRowTiles>
struct LowRankShrink {
  static constexpr int kWarps = kLowRankThreads / 32, kColumnTiles = 6, kPassColumns = 8 * kColumnTiles;
  static constexpr int kWarpK = kLowRankBlockK / kWarps, kSteps = kWarpK / 32;
  static constexpr int kStepsAtOnce = kRowTiles == 1 ? kSteps : 1;  // more would spill registers
  // Sums of a lane.
  using Sums = float[kRowTiles][kColumnTiles][4];
  static constexpr int kPairs = kRowTiles * kColumnTiles * 2;

  // Rows of x of a lane: lane / 4 and 8 more of each tile; null: none.
  using Rows = const T* [kRowTiles][2];

  // Pairs of sums, by warp: pair, lane.
  float2 shared[kWarps][kPairs][32];

  static __device__ __forceinline__ void find_rows(const LowRankShrinkParams& params, const ShrinkItem& item,
                                                   Rows& rows) {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int row = i * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
      rows[i / 2][i % 2] = row < item.segment.count
                               ? static_cast<const T*>(params.x) +
                                     params.arrays.tokens[item.segment.first + row] * params.x_stride
                               : nullptr;
    }
  }

  // Prefetches B of the layer, which expand_low_rank() reads next.
  static __device__ __forceinline__ void prefetch_b(const ShrinkItem& item, int num_k_blocks) {
    for (int i = 0; i < item.layer.num_terms; ++i) {
      const LowRankTermEntry& term = item.entry->terms[i];
      prefetch_part(term.b, int64_t{term.num_outputs} * term.rank * static_cast<int>(sizeof(T)), item.k_block,
                    num_k_blocks);
    }
  }

  static __device__ __forceinline__ void multiply(Sums& sums, const uint4 (&a)[kColumnTiles],
                                                  const uint4 (&x)[kRowTiles][2]) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
      for (int column = 0; column < kColumnTiles; ++column) {
        const uint4 &low = x[tile][0], &high = x[tile][1];
        ptx::mma_m16n8k16(sums[tile][column], {low.x, high.x, low.y, high.y}, a[column].x, a[column].y, T());
        ptx::mma_m16n8k16(sums[tile][column], {low.z, high.z, low.w, high.w}, a[column].z, a[column].w, T());
      }
  }

  __device__ __forceinline__ void run(const LowRankShrinkParams& params, const LowRankHeader& header,
                                      const ShrinkItem& item, const Rows& rows) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const LowRankLayer& layer = item.layer;
    const int first_k = item.k_block * kLowRankBlockK + warp * kWarpK + lane % 4 * 8;
    for (int first = 0; first < layer.rank; first += kPassColumns) {
      Sums sums = {};
#pragma unroll(kStepsAtOnce)
      for (int step = 0; step < kSteps; ++step) {
        const int k = first_k + 32 * step;
        uint4 a[kColumnTiles], x[kRowTiles][2];
#pragma unroll
        for (int column = 0; column < kColumnTiles; ++column) {
          const int row = first + 8 * column + lane / 4;
          a[column] = row < layer.rank && k < layer.in_stride
                          ? *reinterpret_cast<const uint4*>(static_cast<const T*>(layer.a) +
                                                            static_cast<int64_t>(row) * layer.in_stride + k)
                          : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < 2 * kRowTiles; ++i)
          x[i / 2][i % 2] = rows[i / 2][i % 2] != nullptr
                                ? load_inputs(rows[i / 2][i % 2], k, params.in_features, params.aligned)
                                : make_uint4(0, 0, 0, 0);
        multiply(sums, a, x);
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const float(&four)[4] = sums[pair / 2 / kColumnTiles][pair / 2 % kColumnTiles];
        shared[warp][pair][lane] = make_float2(four[pair % 2 * 2], four[pair % 2 * 2 + 1]);
      }
      __syncthreads();
      for (int pair = warp; pair < kPairs; pair += kWarps) {
        const int row = pair / 2 / kColumnTiles * 16 + pair % 2 * 8 + lane / 4;
        const int column = first + pair / 2 % kColumnTiles * 8 + lane % 4 * 2;
        if (row >= item.segment.count || column >= layer.rank) continue;
        float2 sum = shared[0][pair][lane];
#pragma unroll
        for (int from = 1; from < kWarps; ++from) {
          sum.x += shared[from][pair][lane].x;
          sum.y += shared[from][pair][lane].y;
        }
        *reinterpret_cast<float2*>(product_row(header, item.segment, row) + kRowHeader +
                                   static_cast<int64_t>(item.k_block) * layer.rank + column) = sum;
      }
      __syncthreads();
    }
    if (params.partial_squares != nullptr && item.k_block == 0 && layer.rank > 0)
      write_norm_factors(params, header, item.segment);
  }
};

template <class T, int kRowTiles>
__global__ void __launch_bounds__(kLowRankThreads, kRowTiles == 1 ? 3 : 2)
    low_rank_shrink_kernel(const __grid_constant__ LowRankShrinkParams params) {
  using Shrink = LowRankShrink<T, kRowTiles>;
  __shared__ Shrink shrink;
  const int num_k_blocks = num_low_rank_blocks(params.in_features);
  int item_idx = static_cast<int>(blockIdx.x);
  ShrinkItem item = shrink_item(params, item_idx, num_k_blocks);
  const LowRankHeader header = *params.arrays.header;
  const int num_items = header.num_segments * num_k_blocks;
  typename Shrink::Rows rows{};
  const auto load = [&] {
    if (item_idx >= num_items) return;
    load_layer(params, item);
    Shrink::find_rows(params, item, rows);
  };
  load();
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  while (item_idx < num_items) {
    shrink.run(params, header, item, rows);
    if constexpr (kRowTiles == 1) Shrink::prefetch_b(item, num_k_blocks);
    item_idx += static_cast<int>(gridDim.x);
    item = shrink_item(params, item_idx, num_k_blocks);
    load();
  }
}

template <class T>
void launch_low_rank_shrink(const LowRankShrinkParams& params, int num_ctas, void* stream) {
  const auto kernel = params.arrays.segment_tokens == kSmallSegment
                          ? low_rank_shrink_kernel<T, kSmallSegment / 16>
                          : low_rank_shrink_kernel<T, kLargeSegment / 16>;
  launch_dependent<LowRankShrinkParams>(kernel, dim3(static_cast<unsigned>(num_ctas)), kLowRankThreads, 0,
                                        stream, params, "shrink_low_rank");
}

}  // namespace attend::kernels::cuda::sm80
