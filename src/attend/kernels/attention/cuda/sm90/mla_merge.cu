// Merges the partial results of MLA's jobs that lie in several CTAs. A row is 512 columns wide, so that the
// threads of a CTA share few rows and a thread has many parts under way.
#include "attend/kernels/attention/cuda/common/plan_rules.cuh"
#include "attend/kernels/attention/cuda/common/row_state.cuh"
#include "attend/kernels/attention/cuda/common/work_tile_rows.cuh"
#include "attend/kernels/attention/cuda/sm90/mla_kernel.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr int kThreadsOfRow = kMlaHeadDimV / 4, kRowsPerCta = 2, kThreads = kThreadsOfRow * kRowsPerCta;
constexpr int kPartsAtOnce = 16;

// CTA (c, y): rows kRowsPerCta y and on of the job that begins in CTA c of MLA and ends in a later one.
__global__ void __launch_bounds__(kThreads) mla_merge(const __grid_constant__ AttentionParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const PlanView& plan = params.plan;
  const int cta = static_cast<int>(blockIdx.x);
  // Both loads at once; a tile behind the last KV tile is not looked at.
  const PlanHeader header = *plan.header;
  const auto [tile, head, num_done] = plan.cta_starts[cta + plan.heads_at_once];
  if ((cta / plan.heads_at_once + 1) * header.kv_tiles_per_cta >= header.num_kv_tiles) return;
  if (num_done == 0 || num_done > header.kv_tiles_per_cta) return;
  const sm80::WorkTileRows rows(params, tile, head, plan.tile_rows);
  const int thread = static_cast<int>(threadIdx.x) % kThreadsOfRow, lane = thread % 32;
  const int tile_row =
      static_cast<int>(blockIdx.y) * kRowsPerCta + static_cast<int>(threadIdx.x) / kThreadsOfRow;
  if (tile_row >= rows.num_rows) return;
  const sm80::PartialResults parts = sm80::partials_of<false>(plan, tile, head, header.kv_tiles_per_cta);
  const auto slot_row = [&](int part) { return int64_t{parts.index(part)} * plan.partial_rows + tile_row; };

  // Reads past L1, which other SMs' writes do not reach.
  float row_max = -INFINITY;
  for (int part = lane; part < parts.count; part += 32)
    row_max = fmaxf(row_max, __ldcg(plan.partial_state + slot_row(part)).x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffffu, row_max, step));
  const float factor = sm80::softmax_scale_log2_of(params);
  const float shift = row_max == -INFINITY ? 0.0f : __fmul_rn(row_max, factor);

  const int column = thread * 4;
  const bool has_columns = column < params.head_dim_v;
  float sum = 0.0f;
  float4 out{};
  for (int first = 0; first < parts.count; first += 32) {
    // Lane n: of part first + n.
    float2 state = make_float2(-INFINITY, 0.0f);
    if (first + lane < parts.count) state = __ldcg(plan.partial_state + slot_row(first + lane));
    const float weight = ptx::ex2_approx(__fmul_rn(state.x, factor) - shift);
    sum += weight * state.y;
    for (int batch = 0; batch < 32 && first + batch < parts.count; batch += kPartsAtOnce) {
      float4 values[kPartsAtOnce];
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
        values[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (has_columns && first + batch + i < parts.count)
          values[i] = __ldcg(reinterpret_cast<const float4*>(
              plan.partial_out + slot_row(first + batch + i) * params.head_dim_v + column));
      }
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
        const float w = __shfl_sync(0xffffffffu, weight, batch + i);
        out.x += w * values[i].x;
        out.y += w * values[i].y;
        out.z += w * values[i].z;
        out.w += w * values[i].w;
      }
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);

  const sm80::TileRow row = rows.at(params, tile_row);
  const int64_t token = rows.span.first_token + row.query;
  const sm80::RowResult result = sm80::finish_row(params, row_max, sum, factor, row.head);
  if (thread == 0 && params.lse != nullptr)
    params.lse[token * params.lse_token_stride + row.head * params.lse_head_stride] = result.lse;
  if (!has_columns) return;
  const int64_t to = token * params.out.token_stride + row.head * params.out.head_stride + column;
  const float elements[4] = {out.x, out.y, out.z, out.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    store_element(params.out.data, to + i, params.out_element, elements[i] * result.out_scale);
}

}  // namespace

void launch_mla_merge(const AttentionParams& params, void* stream) {
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas),
                  static_cast<unsigned>((params.plan.tile_rows + kRowsPerCta - 1) / kRowsPerCta));
  launch_dependent<AttentionParams>(mla_merge, grid, kThreads, 0, stream, params, "merge of partial MLA");
}

}  // namespace attend::kernels::cuda::sm90
