// Second half of low-rank adapters of gate and up, and the activation: activated = silu(gate) * up with
// [gate | up] += scale * B (A x), for all tokens of a step.
//
//   tile        16 tokens of a segment x 128 features of gate and the same of up
//   warps       4: like low_rank_expand.cuh, 32 features each
//   registers   at most 128 (4 CTAs per SM)
//   shared      A x of the terms of gate and of up: 17 KB
//   bytes       like low_rank_expand.cuh; [gate | up] once
//   bound       reading B and [gate | up]
#pragma once

#include <type_traits>

#include "attend/kernels/gemm/cuda/sm80/low_rank_expand.cuh"

namespace attend::kernels::cuda::sm80 {

template <class T>
struct LowRankGate {
  using Expand = LowRankExpand<T, 1>;
  static constexpr Element kElement = std::is_same_v<T, __half> ? Element::kF16 : Element::kBF16;

  Expand halves[2];

  // Work of a CTA. Terms without a rank: none.
  struct Part {
    LowRankSegment segment;
    LowRankLayer layer, next;
    ExpandItem items[2];
    typename Expand::Loaded loaded[2];
  };

  static __device__ __forceinline__ void find(const LowRankGateParams& params, int segment_idx, Part& part) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    part.segment = params.expand.arrays.segments[segment_idx];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = i * 8 + lane / 4;
      part.loaded[0].tokens[i] =
          row < part.segment.count ? params.expand.arrays.tokens[part.segment.first + row] : -1;
    }
    part.items[0].term.rank = part.items[1].term.rank = part.next.rank = 0;
    if (part.segment.table == nullptr) return;
    const LowRankLayerEntry* const entry = find_entry(part.segment, params.expand.adapter_index);
    part.layer = entry->layer;
    part.next = entry[1].layer;
    const int begin = static_cast<int>(blockIdx.x) * kGateOuts;
    const int count = min(kGateOuts, params.intermediate - begin);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Terms begin at the first feature of a half: each is of gate, of up, or of both.
      const int feature = half * params.intermediate + begin;
      for (int i = 0; i < part.layer.num_terms; ++i) {
        const LowRankTermEntry& term = entry->terms[i];
        const int first = feature - term.first_out;
        if (first < 0 || first >= term.num_outputs) continue;
        part.items[half] = {term, first, first + count};
        if (warp * Expand::kWarpOuts < count)
          Expand::load_weights(term, first + warp * Expand::kWarpOuts, lane % 4 * 4,
                               part.loaded[half].weights);
        break;
      }
    }
  }

  __device__ __forceinline__ void run(const LowRankGateParams& params, const LowRankHeader& header,
                                      Part& part) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int feature = static_cast<int>(blockIdx.x) * kGateOuts + warp * Expand::kWarpOuts;
    uint4 bits[2][2] = {};  // of a row: gate, up
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (part.loaded[0].tokens[i] >= 0 && feature < params.intermediate)
          bits[i][half] = *reinterpret_cast<const uint4*>(
              static_cast<const T*>(params.expand.out) + part.loaded[0].tokens[i] * params.expand.out_stride +
              half * params.intermediate + feature + lane % 4 * 8);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (part.items[half].term.rank > 0)
        halves[half].load_products(params.expand, header, part.segment, part.layer, part.items[half]);
    __syncthreads();
    if (feature < params.intermediate) {
      float sums[2][1][4][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const ExpandItem& item = part.items[half];
        if (item.term.rank == 0) continue;
        halves[half].multiply(item.term, item.begin + warp * Expand::kWarpOuts, item.end, item.end,
                              part.loaded[half].weights, sums[half]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = part.loaded[0].tokens[i];
        if (token < 0) continue;
        float values[2][kGroupElements];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float group[kGroupElements];
          convert_16_bit_group<T>(bits[i][half], values[half]);
          Expand::lane_outputs(sums[half], i, group);
          // Rounded as if it was stored.
#pragma unroll
          for (int j = 0; j < kGroupElements; ++j)
            values[half][j] = rounded(group[j] + values[half][j], kElement);
        }
        // As in silu_mul().
#pragma unroll
        for (int j = 0; j < kGroupElements; ++j)
          values[0][j] = __fdividef(values[0][j], 1.0f + expf(-values[0][j])) * values[1][j];
        store_group(params.activated, token * params.activated_stride + feature + lane % 4 * 8, kElement,
                    values[0]);
      }
    }
    __syncthreads();
  }
};

// Grid: parts of the features, segments.
template <class T>
__global__ void __launch_bounds__(kLowRankThreads, 4)
    low_rank_gate_kernel(const __grid_constant__ LowRankGateParams params) {
  using Gate = LowRankGate<T>;
  __shared__ Gate gate;
  const LowRankHeader header = *params.expand.arrays.header;
  int segment_idx = static_cast<int>(blockIdx.y);
  typename Gate::Part part{};
  if (segment_idx < header.num_all_segments) Gate::find(params, segment_idx, part);
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  while (segment_idx < header.num_all_segments) {
    gate.run(params, header, part);
    if (part.next.rank > 0)
      Gate::Expand::prefetch_a(part.next, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    segment_idx += static_cast<int>(gridDim.y);
    if (segment_idx < header.num_all_segments) Gate::find(params, segment_idx, part);
  }
}

template <class T>
void launch_low_rank_gate(const LowRankGateParams& params, int grid_x, int grid_y, void* stream) {
  launch_dependent<LowRankGateParams>(low_rank_gate_kernel<T>,
                                      dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y)),
                                      kLowRankThreads, 0, stream, params, "expand_low_rank_silu_mul");
}

}  // namespace attend::kernels::cuda::sm80
