// Second half of low-rank adapters: out += scale * B (A x) for the tokens of each segment, on mma.sync.
//
//   tile        kRowTiles * 16 tokens of a segment x params.cta_outs outputs of a term, 32 per warp and pass
//   warps       4: all sum the parts of A x and round them to shared memory; each then multiplies them by
//   rows
//               of B from L2 with mma.m16n8k16, the columns in such an order that a lane has eight
//               neighboring outputs
//   registers   at most 128 with one row tile (4 CTAs per SM), 168 with four (3)
//   shared      A x of the segment in 16 bits: 8.5 KB per row tile, for ranks of up to 256
//   bytes       B once per segment, out twice, parts of A x once per CTA
//   bound       reading B with few tokens, out with many
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/low_rank_step.cuh"

namespace attend::kernels::cuda::sm80 {

template <class T, int kRowTiles>
struct LowRankExpand {
  static constexpr int kWarps = kLowRankThreads / 32, kRows = 16 * kRowTiles, kWarpOuts = kOutsMultiple;
  // Distance of rows in elements: 16 modulo 64, so that the eight-byte loads of four rows have no conflict.
  static __device__ __forceinline__ int row_stride(int rank) { return (rank + 47) / 64 * 64 + 16; }
  static constexpr int kMaxRowStride = (kMaxAdapterRank + 47) / 64 * 64 + 16;

  // Loads that do not depend on A x: the tokens of a lane's rows, and its fragments of B for the first step.
  struct Loaded {
    int32_t tokens[2 * kRowTiles];
    uint2 weights[4];
  };

  alignas(16) T products[kRows * kMaxRowStride];

  // Column lane / 4 of tile i is output 8 * (column / 2) + 2 * i + column % 2.
  static __device__ __forceinline__ void load_weights(const LowRankTermEntry& term, int first, int k,
                                                      uint2 (&weights)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const T* const b = static_cast<const T*>(term.b) +
                       static_cast<int64_t>(first + lane / 8 * 8 + lane / 4 % 2) * term.rank + k;
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[i] = *reinterpret_cast<const uint2*>(b + 2 * i * term.rank);
  }
  static __device__ __forceinline__ void load(const LowRankExpandParams& params,
                                              const LowRankSegment& segment, const ExpandItem& item,
                                              Loaded& loaded) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int row = i * 8 + lane / 4;
      loaded.tokens[i] = row < segment.count ? params.arrays.tokens[segment.first + row] : -1;
    }
    const int first = item.begin + warp * kWarpOuts;
    if (first < item.end) load_weights(item.term, first, lane % 4 * 4, loaded.weights);
  }

  // Prefetches A of the next layer, which shrink_low_rank() reads next: a part in each CTA of a segment.
  static __device__ __forceinline__ void prefetch_a(const LowRankLayer& next, int part, int num_parts) {
    prefetch_part(next.a, int64_t{next.rank} * next.in_stride * static_cast<int>(sizeof(T)), part, num_parts);
  }

  __device__ __forceinline__ void load_products(const LowRankExpandParams& params,
                                                const LowRankHeader& header, const LowRankSegment& segment,
                                                const LowRankLayer& layer, const ExpandItem& item) {
    const int num_vectors = item.term.rank / 4, stride = row_stride(item.term.rank);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * num_vectors; i += kLowRankThreads) {
      const int row = i / num_vectors, rank_idx = i % num_vectors * 4;
      float4 vector = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (row < segment.count)
        vector = scaled_product(params, header, segment, layer, item.term, row, rank_idx);
      uint2 bits;
      T* const values = reinterpret_cast<T*>(&bits);
      values[0] = T(vector.x);
      values[1] = T(vector.y);
      values[2] = T(vector.z);
      values[3] = T(vector.w);
      *reinterpret_cast<uint2*>(products + row * stride + rank_idx) = bits;
    }
  }

  // Eight neighboring outputs of a lane's row i.
  static __device__ __forceinline__ void lane_outputs(const float (&sums)[kRowTiles][4][4], int i,
                                                      float (&group)[kGroupElements]) {
#pragma unroll
    for (int j = 0; j < kGroupElements; ++j) group[j] = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
  }

  // Eight neighboring outputs in a token's row.
  struct Outputs {
    int64_t at;
    int count;
    bool grouped;  // in one or two loads
    float group[kGroupElements];
  };
  static __device__ __forceinline__ void load_outputs(const LowRankExpandParams& params,
                                                      const ExpandItem& item, int token, int out,
                                                      Outputs& outputs) {
    outputs.at = token * params.out_stride + item.term.first_out + out;
    outputs.count = min(kGroupElements, item.end - out);
    outputs.grouped =
        params.aligned && item.term.first_out % kGroupElements == 0 && outputs.count == kGroupElements;
    if (outputs.grouped)
      load_group(params.out, outputs.at, params.out_element, outputs.group);
    else
      load_some(params.out, outputs.at, params.out_element, outputs.count, outputs.group);
  }
  static __device__ __forceinline__ void add(const LowRankExpandParams& params,
                                             const float (&group)[kGroupElements], Outputs& outputs) {
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) outputs.group[i] += group[i];
    if (outputs.grouped)
      store_group(params.out, outputs.at, params.out_element, outputs.group);
    else
      store_some(params.out, outputs.at, params.out_element, outputs.count, outputs.group);
  }

  // sums = B (A x) for outputs [first, first + 32), whose first weights are loaded. Loads those of
  // [next_first, ...), if that is before `end`.
  __device__ __forceinline__ void multiply(const LowRankTermEntry& term, int first, int next_first, int end,
                                           uint2 (&next)[4], float (&sums)[kRowTiles][4][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int stride = row_stride(term.rank), first_k = lane % 4 * 4;
    for (int k = first_k; k < term.rank; k += 16) {
      uint2 weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[i] = next[i];
      if (k + 16 < term.rank)
        load_weights(term, first, k + 16, next);
      else if (next_first < end)
        load_weights(term, next_first, first_k, next);
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const T* const from = products + (tile * 16 + lane / 4) * stride + k;
        const uint2 low = *reinterpret_cast<const uint2*>(from),
                    high = *reinterpret_cast<const uint2*>(from + 8 * stride);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          ptx::mma_m16n8k16(sums[tile][i], {low.x, high.x, low.y, high.y}, weights[i].x, weights[i].y, T());
      }
    }
  }

  __device__ __forceinline__ void run(const LowRankExpandParams& params, const LowRankHeader& header,
                                      const LowRankSegment& segment, const LowRankLayer& layer,
                                      const ExpandItem& item, Loaded& loaded) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const auto is_out = [&](int i, int out) { return loaded.tokens[i] >= 0 && out < item.end; };
    // Those of the first pass are loaded with A x, if there are registers.
    constexpr bool kEarly = kRowTiles == 1;
    Outputs outputs[kEarly ? 2 : 1];
    const int first_out = item.begin + warp * kWarpOuts + lane % 4 * 8;
    if constexpr (kEarly) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (is_out(i, first_out)) load_outputs(params, item, loaded.tokens[i], first_out, outputs[i]);
    }
    load_products(params, header, segment, layer, item);
    __syncthreads();
    for (int first = item.begin + warp * kWarpOuts; first < item.end; first += kWarps * kWarpOuts) {
      float sums[kRowTiles][4][4] = {};
      multiply(item.term, first, first + kWarps * kWarpOuts, item.end, loaded.weights, sums);
      const int out = first + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        if (!is_out(i, out)) continue;
        Outputs& into = outputs[kEarly ? i : 0];
        if (!kEarly || out != first_out) load_outputs(params, item, loaded.tokens[i], out, into);
        float group[kGroupElements];
        lane_outputs(sums, i, group);
        add(params, group, into);
      }
    }
    __syncthreads();
  }
};

// Grid: parts of a segment's outputs, segments.
template <class T, int kRowTiles>
__global__ void __launch_bounds__(kLowRankThreads, kRowTiles == 1 ? 4 : 3)
    low_rank_expand_kernel(const __grid_constant__ LowRankExpandParams params) {
  using Expand = LowRankExpand<T, kRowTiles>;
  __shared__ Expand expand;
  int segment_idx = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  const auto load_segment = [&] {
    return params.arrays.segments[min(segment_idx, params.arrays.max_segments - 1)];
  };
  LowRankSegment segment = load_segment();
  const LowRankHeader header = *params.arrays.header;
  LowRankLayer layer{}, next{};
  ExpandItem item{};
  typename Expand::Loaded loaded{};
  const auto find = [&] {
    item.end = 0;
    while (segment_idx < header.num_segments) {
      const LowRankLayerEntry* const entry = find_entry(segment, params.adapter_index);
      layer = entry->layer;
      next = entry[1].layer;
      item = expand_item(entry, part, params.cta_outs);
      if (item.end > 0) return Expand::load(params, segment, item, loaded);
      part = static_cast<int>(blockIdx.x);
      segment_idx += static_cast<int>(gridDim.y);
      segment = load_segment();
    }
  };
  find();
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  while (item.end > 0) {
    expand.run(params, header, segment, layer, item, loaded);
    if constexpr (kRowTiles == 1)
      Expand::prefetch_a(next, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    part += static_cast<int>(gridDim.x);
    find();
  }
}

template <class T>
void launch_low_rank_expand(const LowRankExpandParams& params, int grid_x, int grid_y, void* stream) {
  const auto kernel = params.arrays.segment_tokens == kSmallSegment
                          ? low_rank_expand_kernel<T, kSmallSegment / 16>
                          : low_rank_expand_kernel<T, kLargeSegment / 16>;
  launch_dependent<LowRankExpandParams>(kernel,
                                        dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y)),
                                        kLowRankThreads, 0, stream, params, "expand_low_rank");
}

}  // namespace attend::kernels::cuda::sm80
