#include <algorithm>

#include "attend/kernels/cuda/element_group.cuh"
#include "attend/kernels/cuda/elementwise_kernels.h"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxNormThreads = 512;
// Groups of a row that a thread of the norm keeps in registers: rows of up to 8192 elements are read once.
constexpr int kKeptGroups = 2;

using Group = float[kGroupElements];

__device__ int64_t row_begin(const DeviceRows& rows, int64_t row) {
  return row / rows.inner * rows.outer_stride + row % rows.inner * rows.inner_stride;
}

// Group `g` of a row of `num_columns` elements that begins at element `begin`.
__device__ void read(const DeviceRows& rows, int64_t begin, int g, int num_columns, bool aligned,
                     Group& group) {
  const int first = g * kGroupElements;
  if (aligned)
    load_group(rows.data, begin + first, rows.element, group);
  else
    load_some(rows.data, begin + first, rows.element, num_columns - first, group);
}
__device__ void write(const DeviceRows& rows, int64_t begin, int g, int num_columns, bool aligned,
                      const Group& group) {
  const int first = g * kGroupElements;
  if (aligned)
    store_group(rows.data, begin + first, rows.element, group);
  else
    store_some(rows.data, begin + first, rows.element, num_columns - first, group);
}

__device__ int num_groups_of(int num_columns) { return (num_columns + kGroupElements - 1) / kGroupElements; }

__device__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__device__ float cta_sum(float value) {
  __shared__ float warp_sums[kMaxNormThreads / 32];
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < num_warps; ++warp) sum += warp_sums[warp];
  return sum;
}

// A CTA per row.
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(const __grid_constant__ CopyRowsParams params) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int64_t row = params.rows == nullptr ? blockIdx.x : params.rows[blockIdx.x];
  const int64_t from = row_begin(params.from, row);
  const int64_t to = row_begin(params.out, blockIdx.x);
  for (int g = threadIdx.x; g < num_groups_of(params.num_columns); g += kThreads) {
    Group group;
    read(params.from, from, g, params.num_columns, params.aligned, group);
    if (params.add) {
      Group sum;
      read(params.out, to, g, params.num_columns, params.aligned, sum);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] += sum[i];
    }
    write(params.out, to, g, params.num_columns, params.aligned, group);
  }
}

// One row of the norm.
class NormRow {
 public:
  __device__ NormRow(const NormParams& params, int64_t row)
      : params_(params),
        x_(row_begin(params.x, row)),
        residual_(row_begin(params.residual, row)),
        out_(row_begin(params.out, row)) {}

  // Group `g` of what is normed; brings the residual up to date. Returns the sum of its squares.
  __device__ float update(int g, Group& group) const {
    read(params_.x, x_, g, params_.dim, params_.aligned, group);
    if (params_.residual.data != nullptr) {
      Group residual;
      read(params_.residual, residual_, g, params_.dim, params_.aligned, residual);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i)
        group[i] = rounded(group[i] + residual[i], params_.residual.element);
      write(params_.residual, residual_, g, params_.dim, params_.aligned, group);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum += group[i] * group[i];
    return sum;
  }

  // The same group again.
  __device__ void reread(int g, Group& group) const {
    if (params_.residual.data != nullptr)
      read(params_.residual, residual_, g, params_.dim, params_.aligned, group);
    else
      read(params_.x, x_, g, params_.dim, params_.aligned, group);
  }

  // What group `g` is multiplied with: no kernel of a step writes it.
  __device__ void read_weights(int g, Group& weights) const {
    const DeviceRows row{const_cast<void*>(params_.weight.data), 0, 0, 1, params_.weight.element};
    read(row, 0, g, params_.dim, params_.aligned, weights);
  }
  __device__ void write_normed(int g, Group& group, const Group& weight, float scale) const {
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * (weight[i] + params_.weight_offset);
    write(params_.out, out_, g, params_.dim, params_.aligned, group);
  }

 private:
  const NormParams& params_;
  int64_t x_, residual_, out_;  // where the rows begin
};

// A CTA per row.
__global__ void __launch_bounds__(kMaxNormThreads)
    rms_norm_kernel(const __grid_constant__ NormParams params) {
  ptx::allow_next_kernel();
  const NormRow row(params, blockIdx.x);
  const int num_groups = num_groups_of(params.dim), num_threads = static_cast<int>(blockDim.x);
  const int first_group = static_cast<int>(threadIdx.x);
  float kept[kKeptGroups][kGroupElements], weights[kKeptGroups][kGroupElements];
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) row.read_weights(g, weights[j]);
  }
  ptx::wait_for_previous_kernel();
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) sum += row.update(g, kept[j]);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    sum += row.update(g, group);
  }
  const float scale = 1.0f / sqrtf(cta_sum(sum) / static_cast<float>(params.dim) + params.eps);
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) row.write_normed(g, kept[j], weights[j], scale);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group, group_weights;
    row.reread(g, group);
    row.read_weights(g, group_weights);
    row.write_normed(g, group, group_weights, scale);
  }
}

// A thread per group.
__global__ void __launch_bounds__(kThreads) silu_mul_kernel(const __grid_constant__ SiluMulParams params) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int num_groups = num_groups_of(params.num_columns);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = i / num_groups;
  const int g = static_cast<int>(i % num_groups);
  if (row >= params.num_rows) return;
  const int64_t gate_begin = row_begin(params.gate_up, row);
  Group gate, up;
  read(params.gate_up, gate_begin, g, params.num_columns, params.aligned, gate);
  read(params.gate_up, gate_begin + params.num_columns, g, params.num_columns, params.aligned, up);
#pragma unroll
  for (int j = 0; j < kGroupElements; ++j) gate[j] = gate[j] / (1.0f + expf(-gate[j])) * up[j];
  write(params.out, row_begin(params.out, row), g, params.num_columns, params.aligned, gate);
}

unsigned ceil_div(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

}  // namespace

void launch_copy_rows(const CopyRowsParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<CopyRowsParams>(copy_rows_kernel, static_cast<unsigned>(params.num_rows), kThreads, 0,
                                   stream, params, "copy of rows");
}

void launch_rms_norm(const NormParams& params, void* stream) {
  if (params.num_rows == 0) return;
  const int num_groups = (params.dim + kGroupElements - 1) / kGroupElements;
  const int num_threads = std::min((num_groups + 31) / 32 * 32, kMaxNormThreads);
  launch_dependent<NormParams>(rms_norm_kernel, static_cast<unsigned>(params.num_rows), num_threads, 0,
                               stream, params, "rms_norm");
}

void launch_silu_mul(const SiluMulParams& params, void* stream) {
  const int64_t num_groups = (params.num_columns + kGroupElements - 1) / kGroupElements;
  if (params.num_rows == 0 || num_groups == 0) return;
  launch_dependent<SiluMulParams>(silu_mul_kernel, ceil_div(params.num_rows * num_groups, kThreads), kThreads,
                                  0, stream, params, "silu_mul");
}

}  // namespace attend::kernels::cuda
