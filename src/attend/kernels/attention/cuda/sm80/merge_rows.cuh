// Merges partial results of a few rows. Code that runs once is bound by its number of instructions, which is
// small here; merge_partials() is for many rows.
#pragma once

#include "attend/kernels/attention/cuda/common/split_kv_barrier.cuh"
#include "attend/kernels/attention/cuda/sm80/merge_partials.cuh"

namespace attend::kernels::cuda::sm80 {

// Each warp of a row sums a share of its partial results from left to right; then a thread sums a column of
// those sums. `rows_per_cta`: rows per CTA, which determines the number of warps per row, and so the bits.
// `staging`: kFloats of shared memory.
template <int kHeadDimV, int kThreads>
class RowMerge {
  static constexpr int kWarps = kThreads / 32, kAtOnce = 8;
  static constexpr int kGroups = (kHeadDimV + 127) / 128;  // groups of 4 columns per lane
  static constexpr int kPitch = kHeadDimV + 4;             // stride between warps' sums: columns, row max,
                                                           // row sum

 public:
  static constexpr int kFloats = kWarps * kPitch;

  __device__ RowMerge(const AttentionParams& params, const PartialResults& partials, int rows_per_cta,
                      float* staging)
      : params_(params),
        partials_(partials),
        warps_per_row_(rows_per_cta == 1   ? kWarps
                       : rows_per_cta == 2 ? kWarps / 2
                                           : 1),
        staging_(staging),
        softmax_scale_log2_(get_softmax_scale_log2(params)) {}

  // `get_row(tile_row)` returns its OutputRow. Called by all threads.
  template <class RowOf>
  __device__ void merge(const MergeRows& share, const RowOf& get_row) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, rows_at_once = kWarps / warps_per_row_;
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += rows_at_once) {
      const int tile_row = first + warp / warps_per_row_;
      if (tile_row < share.end) sum_partials(tile_row, warp);
      __syncthreads();
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < rows_at_once * kHeadDimV; i += kThreads) {
        const int row = i / kHeadDimV, column = i % kHeadDimV;
        if (first + row < share.end && column < params_.head_dim_v)
          write(get_row(first + row), row * warps_per_row_, column);
      }
      __syncthreads();
    }
  }

 private:
  __device__ void sum_partials(int tile_row, int warp) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const PlanView& plan = params_.plan;
    const int warp_partials = (partials_.count + warps_per_row_ - 1) / warps_per_row_;
    const int begin = warp % warps_per_row_ * warp_partials,
              end = min(begin + warp_partials, partials_.count);
    // All partial results except the first are a constant step apart.
    const int step = partials_.step * plan.partial_rows;
    const int row_0 = (partials_.second - partials_.step) * plan.partial_rows + tile_row;
    const int first_row = partials_.first * plan.partial_rows + tile_row;
    const float* const lane_values = plan.partial_out + lane * 4;
    float row_max = -INFINITY, row_sum = 0.0f;
    float4 out[kGroups] = {};
#pragma unroll 1
    for (int first = begin; first < end; first += kAtOnce) {
      const auto row_at = [&](int i) { return first + i == 0 ? first_row : row_0 + (first + i) * step; };
      // Bypasses L1, which does not see other SMs' writes.
      float2 state = make_float2(-INFINITY, 0.0f);
      if (first + lane % kAtOnce < end) state = __ldcg(plan.partial_state + row_at(lane % kAtOnce));
      float4 values[kAtOnce][kGroups];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          values[i][g] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (first + i < end && g * 128 + lane * 4 < params_.head_dim_v)
            values[i][g] = __ldcg(
                reinterpret_cast<const float4*>(lane_values + g * 128 + row_at(i) * params_.head_dim_v));
        }
      float new_max = fmaxf(row_max, state.x);
#pragma unroll
      for (int shift = 1; shift < kAtOnce; shift *= 2)
        new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, shift));
      const MergeScales scales = merge_scales(row_max, state.x, new_max, softmax_scale_log2_);
      row_max = new_max;
      row_sum *= scales.before;
#pragma unroll
      for (float4& four : out)
        four = make_float4(four.x * scales.before, four.y * scales.before, four.z * scales.before,
                           four.w * scales.before);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float scale = __shfl_sync(0xffffffffu, scales.partial, i);
        row_sum = __fmaf_rn(scale, __shfl_sync(0xffffffffu, state.y, i), row_sum);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          out[g].x = __fmaf_rn(scale, values[i][g].x, out[g].x);
          out[g].y = __fmaf_rn(scale, values[i][g].y, out[g].y);
          out[g].z = __fmaf_rn(scale, values[i][g].z, out[g].z);
          out[g].w = __fmaf_rn(scale, values[i][g].w, out[g].w);
        }
      }
    }
    float* const sums = staging_ + warp * kPitch;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      if (g * 128 + lane * 4 < kHeadDimV) *reinterpret_cast<float4*>(sums + g * 128 + lane * 4) = out[g];
    if (lane == 0) *reinterpret_cast<float2*>(sums + kHeadDimV) = make_float2(row_max, row_sum);
  }

  // Writes a column of the row with first warp `first_warp`.
  __device__ void write(const OutputRow& row, int first_warp, int column) const {
    const float* const sums = staging_ + first_warp * kPitch;
    float2 states[kWarps];
    float row_max = -INFINITY, row_sum = 0.0f, out = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      states[warp] = make_float2(-INFINITY, 0.0f);
      if (warp < warps_per_row_)
        states[warp] = *reinterpret_cast<const float2*>(sums + warp * kPitch + kHeadDimV);
      row_max = fmaxf(row_max, states[warp].x);
    }
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp >= warps_per_row_) continue;
      const float scale = merge_scales(row_max, states[warp].x, row_max, softmax_scale_log2_).partial;
      row_sum = __fmaf_rn(scale, states[warp].y, row_sum);
      out = __fmaf_rn(scale, sums[warp * kPitch + column], out);
    }
    const RowResult result = finish_row(params_, row_max, row_sum, softmax_scale_log2_, row.q_head);
    if (column == 0 && params_.lse != nullptr)
      params_.lse[row.token * params_.lse_token_stride + row.q_head * params_.lse_head_stride] = result.lse;
    store_element(params_.out.data,
                  row.token * params_.out.token_stride + row.q_head * params_.out.head_stride + column,
                  params_.out_element, out * result.out_scale);
  }

  const AttentionParams& params_;
  const PartialResults& partials_;
  const int warps_per_row_;
  float* const staging_;
  const float softmax_scale_log2_;
};

}  // namespace attend::kernels::cuda::sm80
