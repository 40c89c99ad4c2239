// Merges the partial results of MLA's work tiles that lie in several CTA ranges.
//
//   tile        rows of a work tile, dealt out among the ends of CTA ranges that lie in it: as much for each
//               of these, whether a work tile lies in two CTA ranges or in all
//   warps       4; of few partial results a CTA takes whole rows, of many 64 columns
//   registers   64 a thread
//   shared      2 KB, for sums over the threads that share columns
//   bytes       2 KB of a row's partial result, once
//   bound       latency
#include "attend/kernels/attention/cuda/common/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_kernel.h"
#include "attend/kernels/attention/cuda/sm90/mla_partial.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kThreads = kMlaHeadDimV / 4;
constexpr int kCtasOfEnd = 4;  // of an end of a CTA range
constexpr int kCtasPerSm = 5;
// What a thread reads at once, four floats each.
constexpr int kInFlight = 8;
// With more partial results, CTAs take columns of a row instead of rows.
constexpr int kFewPartials = 8;
constexpr int kColumnsOfCta = kMlaHeadDimV / kCtasOfEnd;
constexpr int kThreadsOfRow = kColumnsOfCta / 4, kRowSharers = kThreads / kThreadsOfRow;

// What was merged so far: out and sum are relative to row_max.
struct Merged {
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

// One end of a CTA range within a work tile.
class RangeEnd {
 public:
  // `cta`: the CTA of the plan that ends there.
  __device__ RangeEnd(const AttentionParams& params, const CtaStart& next, const PlanLine& line, int cta)
      : params_(params),
        rows_(params, next.tile, next.head, params.plan.tile_rows),
        partials_(sm80::partials_of<false>(params.plan, next.tile, next.head, line)),
        num_ends_(partials_.count - 1),
        scale_log2_(sm80::softmax_scale_log2_of(params)) {
    const int first_cta = (partials_.first - 1) / 2;
    first_row_ = (cta - first_cta) / params.plan.heads_at_once;
  }

  __device__ __forceinline__ void merge() const {
    if (partials_.count <= 2)
      merge_rows<kInFlight / 2, 2>();
    else if (partials_.count <= 4)
      merge_rows<kInFlight / 4, 4>();
    else if (partials_.count <= kFewPartials)
      merge_rows<1, kFewPartials>();
    else
      merge_columns();
  }

 private:
  __device__ __forceinline__ int row(int i) const { return first_row_ + i * num_ends_; }

  // Reads past L1, which other SMs' writes do not reach. `position`: in the row, of four floats.
  __device__ __forceinline__ void load(int partial, int tile_row, int position, bool is_there, float2& state,
                                       float4& value) const {
    state = make_float2(-INFINITY, 0.0f);
    value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!is_there) return;
    const int64_t slot_row = int64_t{partials_.index(partial)} * params_.plan.partial_rows + tile_row;
    state = __ldcg(params_.plan.partial_state + slot_row);
    if (position < mla_partial_stride(params_.head_dim_v))
      value = __ldcg(reinterpret_cast<const float4*>(
          params_.plan.partial_out + slot_row * mla_partial_stride(params_.head_dim_v) + position));
  }

  // This CTA's of the end's rows, kRows of them at once.
  template <int kRows, int kPartials>
  __device__ __forceinline__ void merge_rows() const {
    const int position = static_cast<int>(threadIdx.x) * 4;
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.y); row(i) < rows_.num_rows; i += kRows * kCtasOfEnd) {
      float2 states[kRows][kPartials];
      float4 values[kRows][kPartials];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int tile_row = row(i + r * kCtasOfEnd);
#pragma unroll
        for (int p = 0; p < kPartials; ++p)
          load(p, tile_row, position, tile_row < rows_.num_rows && p < partials_.count, states[r][p],
               values[r][p]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int tile_row = row(i + r * kCtasOfEnd);
        if (tile_row >= rows_.num_rows) break;
        Merged merged;
        merged.add(states[r], values[r], scale_log2_);
        write(merged, tile_row, position);
      }
    }
  }

  // This CTA's columns of all of the end's rows. Threads share the partial results of a row.
  __device__ __forceinline__ void merge_columns() const {
    __shared__ Merged merged_of[kRowSharers][kThreadsOfRow];
    const int sharer = static_cast<int>(threadIdx.x) / kThreadsOfRow,
              thread = static_cast<int>(threadIdx.x) % kThreadsOfRow;
    const int position = static_cast<int>(blockIdx.y) * kColumnsOfCta + thread * 4;
#pragma unroll 1
    for (int i = 0; row(i) < rows_.num_rows; ++i) {
      Merged merged;
#pragma unroll 1
      for (int first = sharer; first < partials_.count; first += kInFlight * kRowSharers) {
        float2 states[kInFlight];
        float4 values[kInFlight];
#pragma unroll
        for (int n = 0; n < kInFlight; ++n) {
          const int partial = first + n * kRowSharers;
          load(partial, row(i), position, partial < partials_.count, states[n], values[n]);
        }
        merged.add(states, values, scale_log2_);
      }
      merged_of[sharer][thread] = merged;
      __syncthreads();
      if (sharer == 0) {
        float2 states[kRowSharers];
        float4 values[kRowSharers];
#pragma unroll
        for (int n = 0; n < kRowSharers; ++n) {
          states[n] = make_float2(merged_of[n][thread].row_max, merged_of[n][thread].sum);
          values[n] = merged_of[n][thread].out;
        }
        Merged all;
        all.add(states, values, scale_log2_);
        write(all, row(i), position);
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void write(const Merged& merged, int tile_row, int position) const {
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
  int first_row_;  // of the end's rows, every num_ends_-th of the tile's
};

// CTA (c, y): of what is to be done for the end of the CTA range of MLA's CTA c.
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    mla_merge(const __grid_constant__ AttentionParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const PlanView& plan = params.plan;
  const int cta = static_cast<int>(blockIdx.x);
  // Both loads at once; a tile behind the last KV tile is not looked at.
  const PlanHeader header = *plan.header;
  const CtaStart next = plan.cta_starts[cta + plan.heads_at_once];
  if ((cta / plan.heads_at_once + 1) * header.line.cta_range >= header.line_length) return;
  if (next.first == 0) return;
  RangeEnd(params, next, header.line, cta).merge();
}

}  // namespace

void launch_mla_merge(const AttentionParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas), kCtasOfEnd);
  launch_dependent<AttentionParams>(mla_merge, grid, kThreads, 0, stream, params, "merge of partial MLA");
}

}  // namespace attend::kernels::cuda::sm90
