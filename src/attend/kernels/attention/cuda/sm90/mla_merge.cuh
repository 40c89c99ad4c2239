// Merges the partial results of MLA's work tiles that lie in several CTA ranges: what groups of 128 threads
// do for one end of a CTA range, in the kernel that left them (mla_meeting.cuh) or in one of its own
// (mla_merge.cu). Rows of a work tile are dealt out among the ends of CTA ranges that lie in it: as much for
// each of these, whether a work tile lies in two CTA ranges or in all.
#pragma once

#include "attend/kernels/attention/cuda/common/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_kernel.h"
#include "attend/kernels/attention/cuda/sm90/mla_partial.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"

namespace attend::kernels::cuda::sm90 {

inline constexpr int kMlaMergeThreads = kMlaHeadDimV / 4;  // of a group: a row, four columns each

// What was merged so far: out and sum are relative to row_max.
struct MlaMerged {
  float row_max = -INFINITY, sum = 0.0f;
  float4 out{};

  // kCount further partial results, those with a state of -inf being none.
  template <int kCount>
  __device__ __forceinline__ void add(const float2 (&states)[kCount], const float4 (&values)[kCount],
                                      float scale_log2) {
    float highest = row_max;
#pragma unroll
    for (const float2& state : states) highest = fmaxf(highest, state.x);
    const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, scale_log2);
    // The product rounded by itself: exactly 1 for the highest.
    const float rescale = ptx::ex2_approx(__fmul_rn(row_max, scale_log2) - shift);
    sum *= rescale;
    out.x *= rescale;
    out.y *= rescale;
    out.z *= rescale;
    out.w *= rescale;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float weight = ptx::ex2_approx(__fmul_rn(states[i].x, scale_log2) - shift);
      sum += weight * states[i].y;
      out.x += weight * values[i].x;
      out.y += weight * values[i].y;
      out.z += weight * values[i].z;
      out.w += weight * values[i].w;
    }
    row_max = highest;
  }
};

// One end of a CTA range within a work tile. `kGroups` groups of threads share it: who has which row or
// column changes no bit.
template <int kGroups>
class MlaRangeEnd {
  // What a thread reads at once, four floats each.
  static constexpr int kInFlight = 32 / kGroups;
  // With more partial results, threads take columns of a row instead of rows.
  static constexpr int kFewPartials = 8;
  // A row's columns in four slices; threads that have the same of a slice share the partial results.
  static constexpr int kSlices = 4, kSlicesOfGroup = kSlices / kGroups;
  static constexpr int kSliceColumns = kMlaHeadDimV / kSlices, kThreadsOfSlice = kSliceColumns / 4,
                       kSharers = kMlaMergeThreads / kThreadsOfSlice;
  static constexpr int kPartialsAtOnce = kInFlight / kSlicesOfGroup;
  static_assert(kSlices % kGroups == 0);

 public:
  // Of a group's threads, in shared memory.
  struct Exchange {
    MlaMerged merged[kSlicesOfGroup][kSharers][kThreadsOfSlice];
  };

  // The present thread's place: its group, the group's named barrier, its number there.
  struct Thread {
    int group, barrier, thread;
  };

  // `cta`: the CTA of the plan that ends within the work tile of `tile` and `head`.
  __device__ MlaRangeEnd(const AttentionParams& params, const RowTile& tile, int head, const PlanLine& line,
                         int cta, const Thread& thread, Exchange& exchange)
      : params_(params),
        rows_(params, tile, head, params.plan.tile_rows),
        partials_(sm80::partials_of<false>(params.plan, tile, head, line)),
        num_ends_(partials_.count - 1),
        scale_log2_(sm80::softmax_scale_log2_of(params)),
        thread_(thread),
        exchange_(exchange) {
    const int first_cta = (partials_.first - 1) / 2;
    first_row_ = (cta - first_cta) / params.plan.heads_at_once;
  }

  // By all threads of the groups.
  __device__ __forceinline__ void merge() const {
    if (partials_.count <= 2)
      merge_rows<kInFlight / 2, 2>();
    else if (partials_.count <= 4)
      merge_rows<kInFlight / 4, 4>();
    else if (partials_.count <= kFewPartials)
      merge_rows<kInFlight / kFewPartials, kFewPartials>();
    else
      merge_columns();
  }

 private:
  __device__ __forceinline__ int row(int i) const { return first_row_ + i * num_ends_; }

  // Reads past L1, which other SMs' writes do not reach.
  __device__ __forceinline__ float2 state(int partial, int tile_row, bool is_there) const {
    return is_there ? __ldcg(params_.plan.partial_state + slot_row(partial, tile_row))
                    : make_float2(-INFINITY, 0.0f);
  }
  // `position`: in the row, of four floats.
  __device__ __forceinline__ float4 value(int partial, int tile_row, int position, bool is_there) const {
    const int stride = mla_partial_stride(params_.head_dim_v);
    if (!is_there || position >= stride) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return __ldcg(reinterpret_cast<const float4*>(params_.plan.partial_out +
                                                  slot_row(partial, tile_row) * stride + position));
  }
  __device__ __forceinline__ int64_t slot_row(int partial, int tile_row) const {
    return int64_t{partials_.index(partial)} * params_.plan.partial_rows + tile_row;
  }

  // The group's of the end's rows, kRows of them at once.
  template <int kRows, int kPartials>
  __device__ __forceinline__ void merge_rows() const {
    const int position = thread_.thread * 4;
#pragma unroll 1
    for (int i = thread_.group; row(i) < rows_.num_rows; i += kRows * kGroups) {
      float2 states[kRows][kPartials];
      float4 values[kRows][kPartials];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int tile_row = row(i + r * kGroups);
#pragma unroll
        for (int p = 0; p < kPartials; ++p) {
          const bool is_there = tile_row < rows_.num_rows && p < partials_.count;
          states[r][p] = state(p, tile_row, is_there);
          values[r][p] = value(p, tile_row, position, is_there);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int tile_row = row(i + r * kGroups);
        if (tile_row >= rows_.num_rows) break;
        MlaMerged merged;
        merged.add(states[r], values[r], scale_log2_);
        write(merged, tile_row, position);
      }
    }
  }

  // The group's columns of all of the end's rows.
  __device__ __forceinline__ void merge_columns() const {
    const int sharer = thread_.thread / kThreadsOfSlice, in_slice = thread_.thread % kThreadsOfSlice;
    const auto position = [&](int slice) {
      return (slice * kGroups + thread_.group) * kSliceColumns + in_slice * 4;
    };
#pragma unroll 1
    for (int i = 0; row(i) < rows_.num_rows; ++i) {
      MlaMerged merged[kSlicesOfGroup];
#pragma unroll 1
      for (int first = sharer; first < partials_.count; first += kPartialsAtOnce * kSharers) {
        float2 states[kPartialsAtOnce];
        float4 values[kSlicesOfGroup][kPartialsAtOnce];
#pragma unroll
        for (int n = 0; n < kPartialsAtOnce; ++n) {
          const int partial = first + n * kSharers;
          states[n] = state(partial, row(i), partial < partials_.count);
#pragma unroll
          for (int slice = 0; slice < kSlicesOfGroup; ++slice)
            values[slice][n] = value(partial, row(i), position(slice), partial < partials_.count);
        }
#pragma unroll
        for (int slice = 0; slice < kSlicesOfGroup; ++slice)
          merged[slice].add(states, values[slice], scale_log2_);
      }
#pragma unroll
      for (int slice = 0; slice < kSlicesOfGroup; ++slice)
        exchange_.merged[slice][sharer][in_slice] = merged[slice];
      ptx::barrier_sync(thread_.barrier, kMlaMergeThreads);
      // A slice's sharers are put together by those of its own number.
      if (sharer < kSlicesOfGroup) {
        float2 states[kSharers];
        float4 values[kSharers];
#pragma unroll
        for (int n = 0; n < kSharers; ++n) {
          const MlaMerged& of = exchange_.merged[sharer][n][in_slice];
          states[n] = make_float2(of.row_max, of.sum);
          values[n] = of.out;
        }
        MlaMerged all;
        all.add(states, values, scale_log2_);
        write(all, row(i), position(sharer));
      }
      ptx::barrier_sync(thread_.barrier, kMlaMergeThreads);
    }
  }

  __device__ __forceinline__ void write(const MlaMerged& merged, int tile_row, int position) const {
    const sm80::TileRow row = rows_.at(params_, tile_row);
    const int64_t token = rows_.span.first_token + row.query;
    const sm80::RowResult result =
        sm80::finish_row(params_, merged.row_max, merged.sum, scale_log2_, row.head);
    if (position == 0 && params_.lse != nullptr)
      params_.lse[token * params_.lse_token_stride + row.head * params_.lse_head_stride] = result.lse;
    const int64_t to = token * params_.out.token_stride + row.head * params_.out.head_stride;
    const int column = mla_partial_column(position);
    const float4 out = merged.out;
    if (column < params_.head_dim_v)
      store_pair(to + column, out.x * result.out_scale, out.y * result.out_scale);
    if (column + 8 < params_.head_dim_v)
      store_pair(to + column + 8, out.z * result.out_scale, out.w * result.out_scale);
  }
  __device__ __forceinline__ void store_pair(int64_t to, float a, float b) const {
    if (params_.out_element == Element::kF32)
      *reinterpret_cast<float2*>(static_cast<float*>(params_.out.data) + to) = make_float2(a, b);
    else
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(params_.out.data) + to) =
          params_.out_element == Element::kBF16 ? sm80::pack(a, b, __nv_bfloat16())
                                                : sm80::pack(a, b, __half());
  }

  const AttentionParams& params_;
  const sm80::WorkTileRows rows_;
  const sm80::PartialResults partials_;
  const int num_ends_;
  const float scale_log2_;
  const Thread thread_;
  Exchange& exchange_;
  int first_row_;  // of the end's rows, every num_ends_-th of the tile's
};

}  // namespace attend::kernels::cuda::sm90
