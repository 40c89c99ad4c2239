// Values that depend on each token's position and its request's length: cos and sin of RoPE with dynamic NTK
// scaling, and row indices of the two tables of longrope. Also cos and sin of positions with several axes.
//
//   tile        angles: 1 token per CTA, one angle per thread; rows: one token per thread
//   warps       2, all alike
//   registers   38; 16
//   shared      none
//   bytes       8 head_dim / 2 per token written, and read with several axes; 4 per token written
//   bound       float64 arithmetic; latency
#include "attend/kernels/metadata/lengths.h"
#include "attend/kernels/norm_rope/cuda/dynamic_angles_kernel.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 64;

// Computes in float64 and rounds at the same points as the host, so that both rotate by the same angles.
__global__ void __launch_bounds__(kThreads)
    dynamic_angles_kernel(const __grid_constant__ DynamicAnglesParams params) {
  const int token = static_cast<int>(blockIdx.x),
            request = last_begin(params.cu_seqlen_q, params.num_reqs + 1, token);
  float* const cos_row = params.cos + int64_t{token} * params.half;
  float* const sin_row = params.sin + int64_t{token} * params.half;
  const int dim = 2 * params.half;
  double theta = 0.0;
  float position = 0.0f;
  if (request < params.num_reqs) {
    position = static_cast<float>(params.positions[token]);
    const double original = params.original_length;
    const double length =
        max(max(params.prompt_lens[request], params.positions[token] + 1), params.original_length);
    const double stretch = params.factor * length / original - (params.factor - 1.0);
    theta = params.theta * pow(stretch, dim / (dim - 2.0));
  }
  for (int i = static_cast<int>(threadIdx.x); i < params.half; i += kThreads) {
    const float angle =
        request < params.num_reqs ? position * static_cast<float>(pow(theta, -2.0 * i / dim)) : 0.0f;
    cos_row[i] = static_cast<float>(cos(static_cast<double>(angle)));
    sin_row[i] = static_cast<float>(sin(static_cast<double>(angle)));
  }
}

// Never allows dependents to start early: kernels that read the rows before their grid dependency resolves
// start after this kernel has finished.
__global__ void __launch_bounds__(kThreads)
    rope_rows_by_length_kernel(const __grid_constant__ RopeRowsByLengthParams params) {
  const int token = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (token >= params.num_tokens) return;
  const int request = last_begin(params.cu_seqlen_q, params.num_reqs + 1, token);
  int row = 0;
  if (request < params.num_reqs) {
    const int position = params.positions[token];
    const bool beyond = max(params.prompt_lens[request], position + 1) > params.original_length;
    row = position + (beyond ? params.num_positions : 0);
  }
  params.rows[token] = row;
}

// Never allows dependents to start early, for the same reason.
__global__ void __launch_bounds__(kThreads)
    axis_angles_kernel(const __grid_constant__ AxisAnglesParams params) {
  const int64_t token = blockIdx.x;
  for (int pair = static_cast<int>(threadIdx.x); pair < params.half; pair += kThreads) {
    const int64_t position = params.positions[params.pair_axes[pair] * int64_t{params.num_tokens} + token];
    params.cos[token * params.half + pair] = params.table_cos[position * params.half + pair];
    params.sin[token * params.half + pair] = params.table_sin[position * params.half + pair];
  }
}

}  // namespace

void launch_axis_angles(const AxisAnglesParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  axis_angles_kernel<<<static_cast<unsigned>(params.num_tokens), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "axis_angles");
}

void launch_rope_rows_by_length(const RopeRowsByLengthParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  rope_rows_by_length_kernel<<<static_cast<unsigned>((params.num_tokens + kThreads - 1) / kThreads), kThreads,
                               0, static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "rope_rows_by_length");
}

void launch_dynamic_angles(const DynamicAnglesParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  dynamic_angles_kernel<<<static_cast<unsigned>(params.num_tokens), kThreads, 0,
                          static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "dynamic_angles");
}

}  // namespace attend::kernels::cuda
