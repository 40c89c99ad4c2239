// Merges the partial results of a work tile that spans several CTAs (split KV). If rows are few, the CTA that
// finishes last merges, as determined by a counter of the work tile; results do not depend on which one it
// is. If rows are many, one SM would take too long, and a separate kernel merges (merge_partials.cu).
#pragma once

#include "attend/kernels/attention/cuda/common/complete_partials.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/common/cuda/element.cuh"

namespace attend::kernels::cuda::sm80 {

// Partial results of a row for which a thread has loads in flight: 32 of 16 bytes.
constexpr int merge_at_once(int head_dim_v) { return head_dim_v <= 128 ? 16 : 2048 / head_dim_v; }

// Merges rows [row_begin, row_end) of a tile. kLanes neighboring threads share a row; each has kGroups times
// 4 of its columns. `get_row(tile_row)` returns its OutputRow. Loads bypass L1, which does not see other SMs'
// writes.
template <int kHeadDimV, int kThreads, int kAtOnce, class RowOf>
__device__ void merge_partials(const AttentionParams& params, const PartialResults& partials, int row_begin,
                               int row_end, const RowOf& get_row) {
  constexpr int kLanes = 16, kGroups = kHeadDimV / 64;
  static_assert(kHeadDimV % 64 == 0 && kLanes % kAtOnce == 0);
  const PlanView& plan = params.plan;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const float softmax_scale_log2 = get_softmax_scale_log2(params);
  // Threads without a row participate in the shuffles.
  for (int first_row = row_begin; first_row < row_end; first_row += kThreads / kLanes) {
    const int tile_row = first_row + static_cast<int>(threadIdx.x) / kLanes;
    const int safe_row = min(tile_row, row_end - 1);
    const auto partial_row = [&](int partial) {
      return int64_t{partials.index(min(partial, partials.count - 1))} * plan.partial_rows + safe_row;
    };
    const auto load_values = [&](int partial, float4(&values)[kAtOnce][kGroups]) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const int column = g * 4 * kLanes + lane * 4;
          values[i][g] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (partial + i < partials.count && column < params.head_dim_v)
            values[i][g] = __ldcg(reinterpret_cast<const float4*>(
                plan.partial_out + partial_row(partial + i) * params.head_dim_v + column));
        }
    };
    float row_max = -INFINITY, row_sum = 0.0f;
    float4 out[kGroups] = {};
    float2 next_state = __ldcg(plan.partial_state + partial_row(lane));
    for (int first_partial = 0; first_partial < partials.count; first_partial += kLanes) {
      // Lane n has the state of partial result first_partial + n, and the scales with which it is merged into
      // the previous ones.
      const float2 state = first_partial + lane < partials.count ? next_state : make_float2(-INFINITY, 0.0f);
      float4 values[kAtOnce][kGroups];
      load_values(first_partial, values);
      next_state = __ldcg(plan.partial_state + partial_row(first_partial + kLanes + lane));
      float new_max = fmaxf(row_max, state.x);
#pragma unroll
      for (int step = 1; step < kLanes; step *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, new_max, step, kLanes);
        if (lane >= step) new_max = fmaxf(new_max, other);
      }
      float before = __shfl_up_sync(0xffffffffu, new_max, 1, kLanes);
      if (lane == 0) before = row_max;
      const MergeScales scales = merge_scales(before, state.x, new_max, softmax_scale_log2);
#pragma unroll 1
      for (int batch = 0; batch < kLanes && first_partial + batch < partials.count; batch += kAtOnce) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const MergeScales these{__shfl_sync(0xffffffffu, scales.before, batch + i, kLanes),
                                  __shfl_sync(0xffffffffu, scales.partial, batch + i, kLanes)};
          const float partial_sum = __shfl_sync(0xffffffffu, state.y, batch + i, kLanes);
          if (first_partial + batch + i >= partials.count) continue;
          row_sum = merged(row_sum, partial_sum, these);
#pragma unroll
          for (int g = 0; g < kGroups; ++g)
            out[g] =
                make_float4(merged(out[g].x, values[i][g].x, these), merged(out[g].y, values[i][g].y, these),
                            merged(out[g].z, values[i][g].z, these), merged(out[g].w, values[i][g].w, these));
        }
        if (batch + kAtOnce < kLanes) load_values(first_partial + batch + kAtOnce, values);
      }
      row_max = __shfl_sync(0xffffffffu, new_max, kLanes - 1, kLanes);
    }
    if (tile_row >= row_end) continue;
    const auto [token, q_head] = get_row(tile_row);
    const RowResult result = finish_row(params, row_max, row_sum, softmax_scale_log2, q_head);
    if (lane == 0 && params.lse != nullptr)
      params.lse[token * params.lse_token_stride + q_head * params.lse_head_stride] = result.lse;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int column = g * 4 * kLanes + lane * 4;
      if (column >= params.head_dim_v) continue;
      const int64_t to = token * params.out.token_stride + q_head * params.out.head_stride + column;
      const float elements[4] = {out[g].x, out[g].y, out[g].z, out[g].w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store_element(params.out.data, to + i, params.out_element, elements[i] * result.out_scale);
    }
  }
}

}  // namespace attend::kernels::cuda::sm80
