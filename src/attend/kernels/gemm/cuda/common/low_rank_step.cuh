// Walk of the CTAs of the low-rank kernels over segments.
#pragma once

#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/gemm/cuda/common/low_rank_entries.h"

namespace attend::kernels::cuda {

__device__ __forceinline__ const LowRankLayerEntry* find_entry(const LowRankSegment& segment,
                                                               int adapter_index) {
  return static_cast<const LowRankLayerEntry*>(segment.table) + adapter_index;
}

// Prefetches part `part` of `num_parts` of an array to L2.
__device__ __forceinline__ void prefetch_part(const void* data, int64_t num_bytes, int part, int num_parts) {
  constexpr int64_t kLine = 128;
  for (int64_t i = kLine * (int64_t{part} * kLowRankThreads + static_cast<int64_t>(threadIdx.x));
       i < num_bytes; i += kLine * num_parts * kLowRankThreads)
    ptx::prefetch_l2(static_cast<const char*>(data) + i);
}

// Part of a CTA's work of shrink_low_rank(): a segment and a K-block.
struct ShrinkItem {
  LowRankSegment segment;
  const LowRankLayerEntry* entry;
  LowRankLayer layer;
  int k_block;
};
// Loads the segment; any item has valid memory, so that the number of segments may be unknown.
__device__ __forceinline__ ShrinkItem shrink_item(const LowRankShrinkParams& params, int item,
                                                  int num_k_blocks) {
  const int segment = min(item / num_k_blocks, params.arrays.max_segments - 1);
  return {params.arrays.segments[segment], nullptr, {}, item % num_k_blocks};
}
__device__ __forceinline__ void load_layer(const LowRankShrinkParams& params, ShrinkItem& item) {
  item.entry = find_entry(item.segment, params.adapter_index);
  item.layer = item.entry->layer;
}

__device__ __forceinline__ int num_low_rank_blocks(int in_features) {
  return (in_features + kLowRankBlockK - 1) / kLowRankBlockK;
}

// Row of A x of a segment's token.
__device__ __forceinline__ float* product_row(const LowRankHeader& header, const LowRankSegment& segment,
                                              int row) {
  return header.products + static_cast<int64_t>(segment.first + row) * header.row_floats;
}

// Writes the factor of a deferred norm of each of the segment's tokens. The order of additions is that of the
// GEMM's deferred norm (deferred_norm.cuh).
__device__ __forceinline__ void write_norm_factors(const LowRankShrinkParams& params,
                                                   const LowRankHeader& header,
                                                   const LowRankSegment& segment) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < segment.count; row += kLowRankThreads / 32) {
    const float* const squares =
        params.partial_squares + params.arrays.tokens[segment.first + row] * params.squares_stride;
    float sum = 0.0f;
    for (int i = lane; i < params.num_squares; i += 32) sum += squares[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0)
      *product_row(header, segment, row) =
          1.0f / sqrtf(sum / static_cast<float>(params.in_features) + params.eps);
  }
}

// Part of a CTA's work of expand_low_rank(): outputs [begin, end) of a term.
struct ExpandItem {
  LowRankTermEntry term;
  int begin, end;  // end 0: none
};
__device__ __forceinline__ ExpandItem expand_item(const LowRankLayerEntry* entry, int part, int cta_outs) {
  // All at once: one after another would wait for each.
  int num_outputs[kMaxTerms];
#pragma unroll
  for (int i = 0; i < kMaxTerms; ++i) num_outputs[i] = entry->terms[i].num_outputs;
  ExpandItem item{};
  int found = -1;
#pragma unroll
  for (int i = 0; i < kMaxTerms; ++i) {
    const int num_parts = (num_outputs[i] + cta_outs - 1) / cta_outs;
    if (found < 0 && part < num_parts) {
      found = i;
      item.begin = part * cta_outs;
      item.end = min(num_outputs[i], (part + 1) * cta_outs);
    }
    part -= num_parts;
  }
  if (found >= 0) item.term = entry->terms[found];
  return item;
}

// Four neighboring numbers of scale * A x of a token, summed over the K-blocks in their order.
__device__ __forceinline__ float4 scaled_product(const LowRankExpandParams& params,
                                                 const LowRankHeader& header, const LowRankSegment& segment,
                                                 const LowRankLayer& layer, const LowRankTermEntry& term,
                                                 int row, int rank_idx) {
  const float* const products = product_row(header, segment, row);
  const float* from = products + kRowHeader + term.first_rank + rank_idx;
  const float scale = params.normed ? term.scale * *products : term.scale;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const int num_blocks = num_low_rank_blocks(params.in_features);
#pragma unroll 8
  for (int block = 0; block < num_blocks; ++block) {
    const float4 part = *reinterpret_cast<const float4*>(from + static_cast<int64_t>(block) * layer.rank);
    sum.x += part.x;
    sum.y += part.y;
    sum.z += part.z;
    sum.w += part.w;
  }
  return make_float4(scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w);
}

}  // namespace attend::kernels::cuda
