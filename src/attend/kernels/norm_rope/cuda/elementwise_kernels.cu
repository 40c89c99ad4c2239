// The small operations between attention and the dense layers: copy of rows, RMSNorm with residual,
// silu(gate) * up.
//
//   tile        copy and norm: a row a CTA; silu_mul: up to 256 groups of eight elements of a row a CTA
//   warps       1 to 8 (norm: to 16), all alike, a thread for each group (norm: for two)
//   registers   37; 56 to 82 for the norm, which keeps rows of up to 8192 elements; 32
//   shared      64 bytes for the norm's sum
//   bytes       every row once in and once out
//   bound       memory; latency where rows are few
#include <algorithm>
#include <initializer_list>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/row_groups.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxThreads = 256, kMaxNormThreads = 512;
// Groups of a row of the norm that a thread keeps in registers: rows of up to 8192 elements are read once.
constexpr int kKeptGroups = 2;

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
__global__ void __launch_bounds__(kMaxThreads)
    copy_rows_kernel(const __grid_constant__ CopyRowsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t row = params.rows == nullptr ? blockIdx.x : params.rows[blockIdx.x];
  const AnyRow from(params.from, row, params.num_columns, params.aligned);
  const AnyRow out(params.out, blockIdx.x, params.num_columns, params.aligned);
  const int num_groups = num_groups_of(params.num_columns);
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += static_cast<int>(blockDim.x)) {
    Group group;
    AnyRow::convert(from.load(g), group);
    if (params.add) {
      const AnyRow::Bits sum = out.load(g);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] += sum.values[i];
    }
    out.store(g, group);
  }
}

// One row of the norm.
template <class Row>
class NormRow {
 public:
  using Bits = typename Row::Bits;

  __device__ NormRow(const NormParams& params, int64_t row)
      : x_(params.x, row, params.dim, params.aligned),
        residual_(params.residual, row, params.dim, params.aligned),
        out_(params.out, row, params.dim, params.aligned),
        weight_(weight_rows(params), 0, params.dim, params.aligned),
        has_residual_(params.residual.data != nullptr),
        weight_offset_(params.weight_offset) {}

  // No kernel of a step writes the weights.
  __device__ Bits load_weights(int g) const { return weight_.load(g); }
  __device__ Bits load_x(int g) const { return x_.load(g); }
  __device__ Bits load_residual(int g) const { return has_residual_ ? residual_.load(g) : Bits{}; }

  // Group `g` of what is normalised; updates the residual. Returns the sum of its squares.
  __device__ float update(int g, const Bits& x, const Bits& before, Group& group) const {
    Row::convert(x, group);
    if (has_residual_) {
      Group residual;
      Row::convert(before, residual);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] = residual_.rounded(group[i] + residual[i]);
      residual_.store(g, group);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
    return sum;
  }

  // The same group again.
  __device__ void reread(int g, Group& group) const {
    Row::convert(has_residual_ ? residual_.load(g) : x_.load(g), group);
  }

  __device__ void write_normalized(int g, Group& group, const Bits& weights, float scale) const {
    Group weight;
    Row::convert(weights, weight);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * (weight[i] + weight_offset_);
    out_.store(g, group);
  }

 private:
  static __device__ DeviceRows weight_rows(const NormParams& params) {
    return {const_cast<void*>(params.weight.data), 0, 0, 1, params.weight.element};
  }

  Row x_, residual_, out_, weight_;
  bool has_residual_;
  float weight_offset_;
};

// A CTA per row.
template <class Row>
__global__ void __launch_bounds__(kMaxNormThreads, 1)
    rms_norm_kernel(const __grid_constant__ NormParams params) {
  ptx::launch_dependents();
  const NormRow<Row> row(params, blockIdx.x);
  const int num_groups = num_groups_of(params.dim), num_threads = static_cast<int>(blockDim.x);
  const int first_group = static_cast<int>(threadIdx.x);
  typename Row::Bits weights[kKeptGroups], x[kKeptGroups], residual[kKeptGroups];
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) weights[j] = row.load_weights(g);
  }
  ptx::griddepcontrol_wait();
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g >= num_groups) break;
    x[j] = row.load_x(g);
    residual[j] = row.load_residual(g);
  }
  float sum = 0.0f;
  Group kept[kKeptGroups];
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) sum += row.update(g, x[j], residual[j], kept[j]);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    sum += row.update(g, row.load_x(g), row.load_residual(g), group);
  }
  const float scale = 1.0f / sqrtf(cta_sum(sum) / static_cast<float>(params.dim) + params.eps);
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) row.write_normalized(g, kept[j], weights[j], scale);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    Group group;
    row.reread(g, group);
    row.write_normalized(g, group, row.load_weights(g), scale);
  }
}

// Division to two roundings: an exact one takes about as many instructions as all else, and prompts wait for
// them.
__device__ float silu(float value) { return __fdividef(value, 1.0f + expf(-value)); }

// CTAs (row, part of the row), a thread per group.
template <class Row>
__global__ void __launch_bounds__(kMaxThreads) silu_mul_kernel(const __grid_constant__ SiluMulParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int g = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (g >= num_groups_of(params.num_columns)) return;
  const auto row_of = [&](const DeviceRows& rows) {
    return Row(rows, blockIdx.x, params.num_columns, params.aligned);
  };
  const typename Row::Bits gate_bits = row_of(params.gate).load(g), up_bits = row_of(params.up).load(g);
  Group gate, up;
  Row::convert(gate_bits, gate);
  Row::convert(up_bits, up);
#pragma unroll
  for (int i = 0; i < kGroupElements; ++i) gate[i] = silu(gate[i]) * up[i];
  row_of(params.out).store(g, gate);
}

// Calls launch.operator()<Row>() with the rows that a kernel takes the fastest.
template <class Launch>
void launch_for_rows(bool aligned, std::initializer_list<Element> elements, const Launch& launch) {
  const Element element = *elements.begin();
  const bool whole =
      aligned && std::all_of(elements.begin(), elements.end(), [=](Element one) { return one == element; });
  if (whole && element == Element::kBF16) return launch.template operator()<WholeRow<__nv_bfloat16>>();
  if (whole && element == Element::kF16) return launch.template operator()<WholeRow<__half>>();
  launch.template operator()<AnyRow>();
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Threads, in whole warps, one for each of so many things, as far as `most` go.
int num_threads_for(int count, int most) { return std::clamp(ceil_div(count, 32) * 32, 32, most); }

}  // namespace

void launch_copy_rows(const CopyRowsParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<CopyRowsParams>(copy_rows_kernel, static_cast<unsigned>(params.num_rows),
                                   num_threads_for(num_groups_of(params.num_columns), kMaxThreads), 0, stream,
                                   params, "copy of rows");
}

void launch_rms_norm(const NormParams& params, void* stream) {
  if (params.num_rows == 0) return;
  const Element residual = params.residual.data == nullptr ? params.x.element : params.residual.element;
  launch_for_rows(params.aligned, {params.x.element, residual, params.out.element, params.weight.element},
                  [&]<class Row> {
                    launch_dependent<NormParams>(
                        rms_norm_kernel<Row>, static_cast<unsigned>(params.num_rows),
                        num_threads_for(ceil_div(num_groups_of(params.dim), kKeptGroups), kMaxNormThreads), 0,
                        stream, params, "rms_norm");
                  });
}

void launch_silu_mul(const SiluMulParams& params, void* stream) {
  const int num_groups = num_groups_of(params.num_columns);
  if (params.num_rows == 0 || num_groups == 0) return;
  // Parts of a row that are equally large.
  const int num_parts = ceil_div(num_groups, kMaxThreads);
  const int num_threads = num_threads_for(ceil_div(num_groups, num_parts), kMaxThreads);
  const dim3 grid(static_cast<unsigned>(params.num_rows), static_cast<unsigned>(num_parts));
  launch_for_rows(params.aligned, {params.gate.element, params.up.element, params.out.element},
                  [&]<class Row> {
                    launch_dependent<SiluMulParams>(silu_mul_kernel<Row>, grid, num_threads, 0, stream,
                                                    params, "silu_mul");
                  });
}

}  // namespace attend::kernels::cuda
