// Merges partial results of a work tile of attention on sm_90a that CTAs verify together (prefill.cuh), whose
// rows are more than those of decode: several at a time, so that more loads are under way.
#pragma once

#include "attend/kernels/attention/cuda/common/complete_partials.cuh"
#include "attend/kernels/attention/cuda/common/meeting.cuh"
#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/common/cuda/element.cuh"

namespace attend::kernels::cuda::sm90 {

// By the 128 threads of `Team`: a warp has every fourth row, of which it merges kRows at a time, and
// kPartials partial results of each, relative to their row max: bits of its own. Lanes share the columns.
template <class Team>
class VerifyMerge {
  static constexpr int kWarps = 4, kRows = 4, kPartials = 4, kColumnsOfLane = 4;
  static_assert(kRows * kPartials <= 32);

 public:
  // Head dims of V up to 128.
  __device__ VerifyMerge(const AttentionParams& params, const PartialResults& partials)
      : params_(params),
        partials_(partials),
        softmax_scale_log2_(softmax_scale_log2_of(params)),
        lane_(Team::thread() % 32) {}

  // `row_of(tile_row)`: its OutputRow.
  template <class RowOf>
  __device__ void merge(const RowShare& share, const RowOf& row_of) const {
#pragma unroll 1
    for (int first = share.begin + Team::thread() / 32; first < share.end; first += kWarps * kRows)
      merge_rows(first, share.end, row_of);
  }

 private:
  template <class RowOf>
  __device__ void merge_rows(int first, int end, const RowOf& row_of) const {
    const PlanView& plan = params_.plan;
    const auto tile_row = [&](int i) { return first + i * kWarps; };
    const auto row_at = [&](int i, int partial) {
      return int64_t{partials_.index(partial)} * plan.partial_rows + tile_row(i);
    };
    // Of the row and the partial result of this lane; the lanes of a row have the same of it.
    const int state_row = lane_ / kPartials % kRows, state_partial = lane_ % kPartials;
    float row_max = -INFINITY, row_sum = 0.0f;
    float4 out[kRows] = {};
#pragma unroll 1
    for (int done = 0; done < partials_.count; done += kPartials) {
      // Other SMs' writes do not reach L1.
      float2 state = make_float2(-INFINITY, 0.0f);
      if (done + state_partial < partials_.count && tile_row(state_row) < end)
        state = __ldcg(plan.partial_state + row_at(state_row, done + state_partial));
      float4 values[kRows][kPartials];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int p = 0; p < kPartials; ++p) {
          values[i][p] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (done + p < partials_.count && tile_row(i) < end && lane_ * kColumnsOfLane < params_.head_dim_v)
            values[i][p] = __ldcg(reinterpret_cast<const float4*>(
                plan.partial_out + row_at(i, done + p) * params_.head_dim_v + lane_ * kColumnsOfLane));
        }
      float new_max = fmaxf(row_max, state.x);
#pragma unroll
      for (int step = 1; step < kPartials; step *= 2)
        new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, step));
      const MergeScales scales = merge_scales(row_max, state.x, new_max, softmax_scale_log2_);
      float added = scales.partial * state.y;
#pragma unroll
      for (int step = 1; step < kPartials; step *= 2) added += __shfl_xor_sync(0xffffffffu, added, step);
      row_max = new_max;
      row_sum = __fmaf_rn(row_sum, scales.before, added);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float before = __shfl_sync(0xffffffffu, scales.before, i * kPartials);
        out[i] = make_float4(out[i].x * before, out[i].y * before, out[i].z * before, out[i].w * before);
#pragma unroll
        for (int p = 0; p < kPartials; ++p) {
          const float scale = __shfl_sync(0xffffffffu, scales.partial, i * kPartials + p);
          out[i].x = __fmaf_rn(scale, values[i][p].x, out[i].x);
          out[i].y = __fmaf_rn(scale, values[i][p].y, out[i].y);
          out[i].z = __fmaf_rn(scale, values[i][p].z, out[i].z);
          out[i].w = __fmaf_rn(scale, values[i][p].w, out[i].w);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float max = __shfl_sync(0xffffffffu, row_max, i * kPartials),
                  sum = __shfl_sync(0xffffffffu, row_sum, i * kPartials);
      if (tile_row(i) < end) write(row_of(tile_row(i)), max, sum, out[i]);
    }
  }

  __device__ void write(const OutputRow& row, float row_max, float row_sum, const float4& out) const {
    const RowResult result =
        finish_row(params_, row_max, row_sum, softmax_scale_log2_, row.q_head);
    if (lane_ == 0 && params_.lse != nullptr)
      params_.lse[row.token * params_.lse_token_stride + row.q_head * params_.lse_head_stride] = result.lse;
    const int column = lane_ * kColumnsOfLane;
    if (column >= params_.head_dim_v) return;
    const int64_t to = row.token * params_.out.token_stride + row.q_head * params_.out.head_stride + column;
    const float elements[kColumnsOfLane] = {out.x, out.y, out.z, out.w};
#pragma unroll
    for (int i = 0; i < kColumnsOfLane; ++i)
      store_element(params_.out.data, to + i, params_.out_element, elements[i] * result.out_scale);
  }

  const AttentionParams& params_;
  const PartialResults& partials_;
  const float softmax_scale_log2_;
  const int lane_;
};

}  // namespace attend::kernels::cuda::sm90
