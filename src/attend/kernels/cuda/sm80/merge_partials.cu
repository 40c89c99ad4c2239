#include "attend/kernels/cuda/element.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/sm80/attention_launch.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda::sm80 {
namespace {

constexpr int kThreads = 128;
constexpr int kFirstParts = 4;

// The job that begins in one CTA of a streamed plan and ends in a later one.
struct SplitJob {
  RowTile tile;
  int head;
  int last_cta;
};

// Whether a job begins in `cta` and is not finished there.
__device__ bool find_split_job(const AttentionParams& params, int cta, SplitJob& job) {
  const PlanView& plan = params.plan;
  // Both loads at once; a tile behind the last unit is not looked at.
  const PlanHeader header = *plan.header;
  job.tile = plan.cta_first_tile[cta + 1];
  const int units_per_cta = header.units_per_cta;
  const int unit = (cta + 1) * units_per_cta;
  if (unit >= header.num_units) return false;
  const int in_tile = unit - job.tile.unit_begin, num_key_tiles = job.tile.num_key_tiles;
  const int done = in_tile % num_key_tiles;
  job.head = in_tile / num_key_tiles;
  job.last_cta = (unit - done + num_key_tiles - 1) / units_per_cta;
  return done > 0 && unit - done >= cta * units_per_cta;
}

__device__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// CTA (c, y): rows y * rows_per_cta and on of the job that begins in CTA c, a warp for each row. Parts merge
// left to right.
__global__ void __launch_bounds__(kThreads)
    merge_partials(const __grid_constant__ AttentionParams params, int rows_per_cta) {
  ptx::allow_next_kernel();
  SplitJob job;
  const int cta = static_cast<int>(blockIdx.x);
  const bool split = find_split_job(params, cta, job);
  ptx::wait_for_previous_kernel();
  if (!split) return;
  const PlanView& plan = params.plan;
  const int lane = threadIdx.x % 32;
  const int num_rows = job.tile.seqlen_q * params.group;
  const int num_parts = job.last_cta - cta + 1;
  for (int i = threadIdx.x / 32; i < rows_per_cta; i += kThreads / 32) {
    const int tile_row = static_cast<int>(blockIdx.y) * rows_per_cta + i;
    const int row = job.tile.row_begin + tile_row;
    if (row >= num_rows) return;
    // Part 0 lies in slot 2 cta + 1, part n in slot 2 (cta + n).
    const auto slot_row = [&](int part) {
      const int slot = part == 0 ? 2 * cta + 1 : 2 * (cta + part);
      return int64_t{slot} * plan.tile_rows + tile_row;
    };
    // The first parts' values are asked for together with the LSEs.
    float4 first_values[kFirstParts];
#pragma unroll
    for (int part = 0; part < kFirstParts; ++part)
      if (part < num_parts && lane * 4 < params.head_dim_v)
        first_values[part] = *reinterpret_cast<const float4*>(plan.partial_out +
                                                              slot_row(part) * params.head_dim_v + lane * 4);
    float largest = -INFINITY;
    for (int part = lane; part < num_parts; part += 32)
      largest = fmaxf(largest, plan.partial_lse[slot_row(part)]);
    largest = warp_max(largest);
    const float shift = largest == -INFINITY ? 0.0f : largest;
    float sum = 0.0f;
    for (int part = lane; part < num_parts; part += 32)
      sum += __expf(plan.partial_lse[slot_row(part)] - shift);
    sum = warp_sum(sum);
    const int q_head = job.head * params.group + row % params.group;
    const int64_t token = job.tile.first_token + row / params.group;
    float factor = 0.0f;
    if (sum > 0.0f) {
      const float sink = params.sinks == nullptr ? 0.0f : __expf(params.sinks[q_head] - shift);
      factor = params.v_scale / (sum + sink);
    }
    for (int column = lane * 4; column < params.head_dim_v; column += 128) {
      float out[4] = {};
      const auto add = [&](int part, const float4& values) {
        const float weight = __expf(plan.partial_lse[slot_row(part)] - shift);
        out[0] += weight * values.x;
        out[1] += weight * values.y;
        out[2] += weight * values.z;
        out[3] += weight * values.w;
      };
      const auto load = [&](int part) {
        return *reinterpret_cast<const float4*>(plan.partial_out + slot_row(part) * params.head_dim_v +
                                                column);
      };
#pragma unroll
      for (int part = 0; part < kFirstParts; ++part)
        if (part < num_parts) add(part, column < 128 ? first_values[part] : load(part));
#pragma unroll 16
      for (int part = kFirstParts; part < num_parts; ++part) add(part, load(part));
      const int64_t to = token * params.out.token_stride + q_head * params.out.head_stride + column;
      for (int d = 0; d < 4; ++d) store_element(params.out.data, to + d, params.out_element, out[d] * factor);
    }
    if (lane == 0 && params.lse != nullptr)
      params.lse[token * params.lse_token_stride + q_head * params.lse_head_stride] =
          sum > 0.0f ? shift + __logf(sum) : -INFINITY;
  }
}

}  // namespace

void launch_merge_partials(const AttentionParams& params, void* stream) {
  const int rows_per_cta = params.plan.tile_rows <= 32 ? 4 : params.plan.tile_rows / 8;
  const dim3 grid(static_cast<unsigned>(params.plan.num_ctas - 1),
                  static_cast<unsigned>(params.plan.tile_rows / rows_per_cta));
  // The CTAs may start while the last of attention's end; they wait before they read a partial result.
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = 1;
  attend::cuda::check(cudaLaunchKernelEx(&config, merge_partials, params, rows_per_cta),
                      "merge of partial attention");
}

}  // namespace attend::kernels::cuda::sm80
