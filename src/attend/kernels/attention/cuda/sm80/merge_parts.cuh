// The parts of a job that lies in several CTAs become its result. Where rows are few, the CTA that ends last
// does it: a counter of the job tells it so. Which one that is changes no bit. Where rows are many, their
// parts are more than one SM can read in good time, and a kernel of its own does it (merge_jobs.cu).
#pragma once

#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/ptx/atomic.cuh"

namespace attend::kernels::cuda::sm80 {

// Parts of a job from the lowest keys to the highest: part 0 lies in slot `first`, part n in slot second +
// (n - 1) step.
struct JobParts {
  int count;
  int first, second, step;
  __device__ int slot(int part) const { return part == 0 ? first : second + (part - 1) * step; }
};

template <bool kFixedSplits>
__device__ JobParts parts_of(const PlanView& plan, const RowTile& tile, int head, int units_per_cta) {
  if (kFixedSplits) {
    const int slot = tile.unit_begin * plan.heads_at_once + head * tile.num_units;
    return {.count = tile.num_units, .first = slot, .second = slot + 1, .step = 1};
  }
  const int unit = tile.unit_begin + head / plan.heads_at_once * tile.num_units;
  const int first_share = unit / units_per_cta, last_share = (unit + tile.num_units - 1) / units_per_cta;
  const int first_cta = first_share * plan.heads_at_once + head % plan.heads_at_once;
  return {.count = last_share - first_share + 1,
          .first = 2 * first_cta + 1,
          .second = 2 * (first_cta + plan.heads_at_once),
          .step = 2 * plan.heads_at_once};
}

// Counts `num_new` parts of a job that this CTA has written. Whether they were the last of `num_parts`. All
// threads call it; all get the answer.
__device__ inline bool complete_parts(int32_t* num_done, int num_new, int num_parts) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = ptx::atom_add_acq_rel(num_done, num_new) + num_new == num_parts;
    // For the next launch.
    if (last) *num_done = 0;
  }
  __syncthreads();
  return last;
}

// Where a row's result goes.
struct OutputRow {
  int token, q_head;
};

// Parts of a row whose results a thread has loads under way for: 32 of 16 bytes.
constexpr int merge_at_once(int head_dim_v) { return head_dim_v <= 128 ? 16 : 2048 / head_dim_v; }

// Rows [row_begin, row_end) of a tile. kLanes neighbouring threads share a row; each has kGroups times 4 of
// its columns. `row_of(tile_row)`: its OutputRow. Reads past L1, which other SMs' writes do not reach.
template <int kHeadDimV, int kThreads, int kAtOnce, class RowOf>
__device__ void merge_parts(const AttentionParams& params, const JobParts& parts, int row_begin, int row_end,
                            const RowOf& row_of) {
  constexpr int kLanes = 16, kGroups = kHeadDimV / 64;
  static_assert(kHeadDimV % 64 == 0 && kLanes % kAtOnce == 0);
  const PlanView& plan = params.plan;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const float factor = score_factor(params);
  // Threads without a row keep the others of their warp company in shuffles.
  for (int first_row = row_begin; first_row < row_end; first_row += kThreads / kLanes) {
    const int tile_row = first_row + static_cast<int>(threadIdx.x) / kLanes;
    const int safe_row = min(tile_row, row_end - 1);
    const auto slot_row = [&](int part) {
      return int64_t{parts.slot(min(part, parts.count - 1))} * plan.partial_rows + safe_row;
    };
    const auto load_values = [&](int part, float4(&values)[kAtOnce][kGroups]) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const int column = g * 4 * kLanes + lane * 4;
          values[i][g] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (part + i < parts.count && column < params.head_dim_v)
            values[i][g] = __ldcg(reinterpret_cast<const float4*>(
                plan.partial_out + slot_row(part + i) * params.head_dim_v + column));
        }
    };
    float largest = -INFINITY, sum = 0.0f;
    float4 out[kGroups] = {};
    float2 next_state = __ldcg(plan.partial_state + slot_row(lane));
    for (int first_part = 0; first_part < parts.count; first_part += kLanes) {
      // Lane n: of part first_part + n, and the weights with which it meets those before it.
      const float2 state = first_part + lane < parts.count ? next_state : make_float2(-INFINITY, 0.0f);
      float4 values[kAtOnce][kGroups];
      load_values(first_part, values);
      next_state = __ldcg(plan.partial_state + slot_row(first_part + kLanes + lane));
      float highest = fmaxf(largest, state.x);
#pragma unroll
      for (int step = 1; step < kLanes; step *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, highest, step, kLanes);
        if (lane >= step) highest = fmaxf(highest, other);
      }
      float before = __shfl_up_sync(0xffffffffu, highest, 1, kLanes);
      if (lane == 0) before = largest;
      const MergeWeights weights = merge_weights(before, state.x, highest, factor);
#pragma unroll 1
      for (int batch = 0; batch < kLanes && first_part + batch < parts.count; batch += kAtOnce) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const MergeWeights these{__shfl_sync(0xffffffffu, weights.before, batch + i, kLanes),
                                   __shfl_sync(0xffffffffu, weights.part, batch + i, kLanes)};
          const float part_sum = __shfl_sync(0xffffffffu, state.y, batch + i, kLanes);
          if (first_part + batch + i >= parts.count) continue;
          sum = merged(sum, part_sum, these);
#pragma unroll
          for (int g = 0; g < kGroups; ++g)
            out[g] =
                make_float4(merged(out[g].x, values[i][g].x, these), merged(out[g].y, values[i][g].y, these),
                            merged(out[g].z, values[i][g].z, these), merged(out[g].w, values[i][g].w, these));
        }
        if (batch + kAtOnce < kLanes) load_values(first_part + batch + kAtOnce, values);
      }
      largest = __shfl_sync(0xffffffffu, highest, kLanes - 1, kLanes);
    }
    if (tile_row >= row_end) continue;
    const auto [token, q_head] = row_of(tile_row);
    const RowResult result = finish_row(params, largest, sum, factor, q_head);
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
        store_element(params.out.data, to + i, params.out_element, elements[i] * result.out_factor);
    }
  }
}

}  // namespace attend::kernels::cuda::sm80
