// Merges the partial results of MLA's work tiles that span several CTA ranges.
//
//   tile        8 rows and 16 columns, distributed over the ends of CTA ranges within a work tile: the same
//               amount for each, regardless of whether a work tile spans two CTA ranges or all of them
//   warps       4; each has its own tiles, or with many partial results its share of these
//   registers   up to 102 per thread
//   shared      4 KB, for sums over warps
//   bytes       2 KB of a row's partial result, once
//   bound       latency
#include "attend/kernels/attention/cuda/common/plan/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/warp_rows.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla/mla_kernel.h"
#include "attend/kernels/attention/cuda/sm90/mla/mla_shared.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
// CTAs per end of a CTA range: many small ones, since SMs without attention work start them before attention
// finishes. If there are more work tiles than half of attention's CTAs, either almost every CTA or none has
// an end of a range, and more CTAs would only increase the launch time.
constexpr int kCtasPerMerge = 8, kCtasPerLargeMerge = 4;
constexpr int kCtasPerSm = 5;
// Loads in flight per thread, four floats each.
constexpr int kInFlight = 8;
// With more partial results, the warps of a CTA share those of the same rows and columns.
constexpr int kFewPartials = 8;

// Merged result so far: out and sum are relative to row_max.
struct Merged {
  float row_max = -INFINITY, sum = 0.0f;
  float4 out{};

  // Adds kCount further partial results; a state of -inf means none.
  template <int kCount>
  __device__ __forceinline__ void add(const float2 (&states)[kCount], const float4 (&values)[kCount],
                                      float scale_log2) {
    float highest = row_max;
#pragma unroll
    for (const float2& state : states) highest = fmaxf(highest, state.x);
    const float shift = highest == -INFINITY ? 0.0f : __fmul_rn(highest, scale_log2);
    // The product is rounded separately, so that the factor is exactly 1 for the highest.
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
class MergeCta {
 public:
  // `cta`: CTA of the plan that ends there.
  __device__ MergeCta(const AttentionParams& params, const CtaStart& next, const KvPartition& partition,
                      int cta)
      : params_(params),
        rows_(params, next.tile, next.head, params.plan.tile_rows),
        partials_(find_partial_results<false>(params.plan, next.tile, next.head, partition)),
        num_blocks_(mla_partial_blocks(params.head_dim_v)),
        scale_log2_(get_softmax_scale_log2(params)) {
    const int first_cta = (partials_.first - 1) / 2, num_ends = partials_.count - 1;
    const int ctas_per_merge = static_cast<int>(gridDim.y);
    share_ = (cta - first_cta) / params.plan.heads_per_round * ctas_per_merge + static_cast<int>(blockIdx.y);
    num_shares_ = num_ends * ctas_per_merge;
  }

  __device__ __forceinline__ void merge() const {
    if (partials_.count <= 2)
      merge_with_warps<2>();
    else if (partials_.count <= 4)
      merge_with_warps<4>();
    else if (partials_.count <= kFewPartials)
      merge_with_warps<kFewPartials>();
    else
      merge_with_cta();
  }

 private:
  // A row group's blocks from `first`. Rows past the end are not written.
  struct Blocks {
    int row_group, first;
    int tile_row;  // row of the lane
    bool valid;
  };
  // `idx`: index among all runs of `count` blocks of the work tile.
  __device__ __forceinline__ Blocks blocks_at(int idx, int count) const {
    const int runs = (num_blocks_ + count - 1) / count, row_group = idx / runs;
    const int tile_row = row_group * kMlaPartialRows + lane_ / 4;
    return {row_group, (idx - row_group * runs) * count, tile_row, tile_row < rows_.num_rows};
  }
  __device__ __forceinline__ int num_runs(int count) const {
    return (rows_.num_rows + kMlaPartialRows - 1) / kMlaPartialRows * ((num_blocks_ + count - 1) / count);
  }

  // Bypasses L1, which does not see other SMs' writes.
  __device__ __forceinline__ float2 load_state(int partial, const Blocks& blocks) const {
    if (partial >= partials_.count || !blocks.valid) return make_float2(-INFINITY, 0.0f);
    return __ldcg(params_.plan.partial_state + int64_t{partials_.index(partial)} * params_.plan.partial_rows +
                  blocks.tile_row);
  }
  __device__ __forceinline__ const float4* values_at(int partial, const Blocks& blocks) const {
    return reinterpret_cast<const float4*>(params_.plan.partial_out +
                                           mla_partial_begin(partials_.index(partial),
                                                             params_.plan.partial_rows, blocks.row_group,
                                                             params_.head_dim_v)) +
           blocks.first * (kMlaPartialBlock / 4) + lane_;
  }
  __device__ __forceinline__ static float4 none() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }

  // Merges this CTA's share by warps, each with several blocks together.
  template <int kPartials>
  __device__ __forceinline__ void merge_with_warps() const {
    constexpr int kCount = kInFlight / kPartials;
    const int warp = share_ * kWarps + static_cast<int>(threadIdx.x) / 32, end = num_runs(kCount);
#pragma unroll 1
    for (int idx = warp; idx < end; idx += num_shares_ * kWarps) {
      const Blocks blocks = blocks_at(idx, kCount);
      float2 states[kPartials];
      float4 values[kCount][kPartials];
#pragma unroll
      for (int p = 0; p < kPartials; ++p) {
        states[p] = load_state(p, blocks);
        const float4* const from = values_at(p, blocks);
#pragma unroll
        for (int n = 0; n < kCount; ++n)
          values[n][p] = p < partials_.count && blocks.valid && blocks.first + n < num_blocks_
                             ? __ldcg(from + n * (kMlaPartialBlock / 4))
                             : none();
      }
#pragma unroll
      for (int n = 0; n < kCount; ++n) {
        Merged merged;
        merged.add(states, values[n], scale_log2_);
        write(merged, blocks, n);
      }
    }
  }

  // Merges this CTA's share block by block. Warps share the partial results.
  __device__ __forceinline__ void merge_with_cta() const {
    __shared__ Merged warp_merges[kWarps][32];
    const int warp = static_cast<int>(threadIdx.x) / 32, end = num_runs(1);
#pragma unroll 1
    for (int idx = share_; idx < end; idx += num_shares_) {
      const Blocks blocks = blocks_at(idx, 1);
      Merged merged;
#pragma unroll 1
      for (int first = warp; first < partials_.count; first += kInFlight * kWarps) {
        float2 states[kInFlight];
        float4 values[kInFlight];
#pragma unroll
        for (int n = 0; n < kInFlight; ++n) {
          const int partial = first + n * kWarps;
          states[n] = load_state(partial, blocks);
          values[n] = partial < partials_.count && blocks.valid ? __ldcg(values_at(partial, blocks)) : none();
        }
        merged.add(states, values, scale_log2_);
      }
      warp_merges[warp][lane_] = merged;
      __syncthreads();
      if (warp == 0) {
        float2 states[kWarps];
        float4 values[kWarps];
#pragma unroll
        for (int n = 0; n < kWarps; ++n) {
          states[n] = make_float2(warp_merges[n][lane_].row_max, warp_merges[n][lane_].sum);
          values[n] = warp_merges[n][lane_].out;
        }
        Merged all;
        all.add(states, values, scale_log2_);
        write(all, blocks, 0);
      }
      __syncthreads();
    }
  }

  // Writes the n-th of the blocks.
  __device__ __forceinline__ void write(const Merged& merged, const Blocks& blocks, int n) const {
    const int column = (blocks.first + n) * kMlaPartialColumns + lane_ % 4 * 2;
    if (!blocks.valid || column >= params_.head_dim_v) return;
    const TileRow row = rows_.at(params_, blocks.tile_row);
    const int64_t token = rows_.span.first_token + row.query;
    const RowResult result = finish_row(params_, merged.row_max, merged.sum, scale_log2_, row.head);
    if (column == 0 && params_.lse != nullptr)
      params_.lse[token * params_.lse_token_stride + row.head * params_.lse_head_stride] = result.lse;
    const int64_t to = token * params_.out.token_stride + row.head * params_.out.head_stride + column;
    const float4 out = merged.out;
    store_pair(to, out.x * result.out_scale, out.y * result.out_scale);
    if (column + 8 < params_.head_dim_v)
      store_pair(to + 8, out.z * result.out_scale, out.w * result.out_scale);
  }
  __device__ __forceinline__ void store_pair(int64_t to, float a, float b) const {
    if (params_.out_element == Element::kF32)
      *reinterpret_cast<float2*>(static_cast<float*>(params_.out.data) + to) = make_float2(a, b);
    else
      *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(params_.out.data) + to) =
          params_.out_element == Element::kBF16 ? pack(a, b, __nv_bfloat16()) : pack(a, b, __half());
  }

  const AttentionParams& params_;
  const WorkTileRows rows_;
  const PartialResults partials_;
  const int num_blocks_;
  const float scale_log2_;
  // Index and number of the CTAs that merge the work tile.
  int share_, num_shares_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
};

// CTA (c, y) processes a part of the work for the end of the CTA range of MLA's CTA c.
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    mla_merge(const __grid_constant__ AttentionParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const PlanView& plan = params.plan;
  const int cta = static_cast<int>(blockIdx.x);
  // Issues both loads together. Tiles past the last KV tile are skipped.
  const PlanHeader header = *plan.header;
  const CtaStart next = plan.cta_starts[cta + plan.heads_per_round];
  if ((cta / plan.heads_per_round + 1) * header.partition.cta_range >= header.num_partition_units) return;
  if (next.first == 0) return;
  MergeCta(params, next, header.partition, cta).merge();
}

}  // namespace

void launch_mla_merge(const AttentionParams& params, int num_work_tiles, void* stream) {
  const bool are_many = 2 * num_work_tiles > params.plan.num_ctas;
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas), are_many ? kCtasPerLargeMerge : kCtasPerMerge);
  launch_dependent<AttentionParams>(mla_merge, grid, kThreads, 0, stream, params, "merge of partial MLA");
}

}  // namespace attend::kernels::cuda::sm90
