#include <algorithm>
#include <initializer_list>

#include "attend/kernels/cuda/elementwise_kernels.h"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/row_groups.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxThreads = 256;
// Groups of a row of the norm that a thread keeps: rows of up to 8192 elements are read once.
constexpr int kKeptGroups = 4;
// The least threads of a CTA of norms, as many rows as that takes.
constexpr int kNormThreads = 128;

__device__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// Of the so many warps of a CTA that share a row.
__device__ float row_sum(float value, int num_warps) {
  __shared__ float warp_sums[kMaxThreads / 32];
  value = warp_sum(value);
  if (num_warps == 1) return value;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) warp_sums[warp] = value;
  __syncthreads();
  const int first = warp / num_warps * num_warps;
  float sum = 0.0f;
  for (int i = first; i < first + num_warps; ++i) sum += warp_sums[i];
  return sum;
}

__host__ __device__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Threads, in whole warps, one for each of so many things, as far as the most go.
__host__ __device__ int num_threads_for(int count) {
  const int num_threads = ceil_div(count, 32) * 32;
  return num_threads < kMaxThreads ? num_threads : kMaxThreads;
}

__host__ __device__ int threads_of_norm_row(const NormParams& params) {
  return num_threads_for(ceil_div(num_groups_of(params.dim), kKeptGroups));
}

// A CTA per row.
__global__ void __launch_bounds__(kMaxThreads)
    copy_rows_kernel(const __grid_constant__ CopyRowsParams params) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
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
    out.store(g, out.pack(group));
  }
}

// One row of the norm, of x or of its sum with the residual.
template <class Row, bool kAdds>
class NormRow {
 public:
  using Bits = typename Row::Bits;

  __device__ NormRow(const NormParams& params, int64_t row)
      : x_(params.x, row, params.dim, params.aligned),
        residual_(params.residual, row, params.dim, params.aligned),
        out_(params.out, row, params.dim, params.aligned),
        weight_(weight_rows(params), 0, params.dim, params.aligned),
        weight_offset_(params.weight_offset) {}

  // No kernel of a step writes the weights.
  __device__ Bits load_weights(int g) const { return weight_.load(g); }
  __device__ Bits load_x(int g) const { return x_.load(g); }
  __device__ Bits load_residual(int g) const {
    if constexpr (kAdds) return residual_.load(g);
    return {};
  }

  // Brings group `g` of the residual up to date and makes x what is normed, which is that group. Returns the
  // sum of its squares.
  __device__ float update(int g, Bits& x, const Bits& residual) const {
    Group group;
    Row::convert(x, group);
    if constexpr (kAdds) {
      Group added;
      Row::convert(residual, added);
#pragma unroll
      for (int i = 0; i < kGroupElements; ++i) group[i] += added[i];
      x = residual_.pack(group);
      residual_.store(g, x);
      Row::convert(x, group);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
    return sum;
  }

  // What update() made of group `g`.
  __device__ Bits reread(int g) const { return kAdds ? residual_.load(g) : x_.load(g); }

  __device__ void write_normed(int g, const Bits& bits, const Bits& weights, float scale) const {
    Group group, weight;
    Row::convert(bits, group);
    Row::convert(weights, weight);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] *= scale * (weight[i] + weight_offset_);
    out_.store(g, out_.pack(group));
  }

 private:
  static __device__ DeviceRows weight_rows(const NormParams& params) {
    return {const_cast<void*>(params.weight.data), 0, 0, 1, params.weight.element};
  }

  Row x_, residual_, out_, weight_;
  float weight_offset_;
};

// CTAs of the most threads that an SM has room for, so that enough groups are under way.
template <class Row, bool kAdds>
constexpr int ctas_of_norm = Row::kIsPacked && !kAdds ? 3 : 2;

// A CTA per row, or per few rows that are short.
template <class Row, bool kAdds>
__global__ void __launch_bounds__(kMaxThreads, ctas_of_norm<Row, kAdds>)
    rms_norm_kernel(const __grid_constant__ NormParams params) {
  ptx::allow_next_kernel();
  const int num_threads = threads_of_norm_row(params), thread = static_cast<int>(threadIdx.x);
  const int rows_of_cta = static_cast<int>(blockDim.x) / num_threads;
  const int64_t row_idx = int64_t{blockIdx.x} * rows_of_cta + thread / num_threads;
  const NormRow<Row, kAdds> row(params, row_idx);
  // None of a row that there is not; its threads go on to the barrier.
  const int num_groups = row_idx < params.num_rows ? num_groups_of(params.dim) : 0;
  const int first_group = thread % num_threads;
  typename Row::Bits weights[kKeptGroups], kept[kKeptGroups], residual[kKeptGroups];
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) weights[j] = row.load_weights(g);
  }
  ptx::wait_for_previous_kernel();
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g >= num_groups) break;
    kept[j] = row.load_x(g);
    residual[j] = row.load_residual(g);
  }
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) sum += row.update(g, kept[j], residual[j]);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads) {
    typename Row::Bits x = row.load_x(g);
    sum += row.update(g, x, row.load_residual(g));
  }
  const float scale =
      1.0f / sqrtf(row_sum(sum, num_threads / 32) / static_cast<float>(params.dim) + params.eps);
#pragma unroll
  for (int j = 0; j < kKeptGroups; ++j) {
    const int g = first_group + j * num_threads;
    if (g < num_groups) row.write_normed(g, kept[j], weights[j], scale);
  }
  for (int g = first_group + kKeptGroups * num_threads; g < num_groups; g += num_threads)
    row.write_normed(g, row.reread(g), row.load_weights(g), scale);
}

// Division to two roundings: an exact one takes as many instructions as all else, and prompts wait for them.
__device__ float silu(float value) { return __fdividef(value, 1.0f + expf(-value)); }

// CTAs (row, part of the row), a thread per group.
template <class Row>
__global__ void __launch_bounds__(kMaxThreads) silu_mul_kernel(const __grid_constant__ SiluMulParams params) {
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
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
  const Row out = row_of(params.out);
  out.store(g, out.pack(gate));
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

}  // namespace

void launch_copy_rows(const CopyRowsParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<CopyRowsParams>(copy_rows_kernel, static_cast<unsigned>(params.num_rows),
                                   num_threads_for(num_groups_of(params.num_columns)), 0, stream, params,
                                   "copy of rows");
}

void launch_rms_norm(const NormParams& params, void* stream) {
  if (params.num_rows == 0 || params.dim == 0) return;
  const int threads_of_row = threads_of_norm_row(params);
  const int rows_of_cta = std::max(kNormThreads / threads_of_row, 1);
  const bool adds = params.residual.data != nullptr;
  launch_for_rows(params.aligned,
                  {params.x.element, adds ? params.residual.element : params.x.element, params.out.element,
                   params.weight.element},
                  [&]<class Row> {
                    launch_dependent<NormParams>(
                        adds ? rms_norm_kernel<Row, true> : rms_norm_kernel<Row, false>,
                        static_cast<unsigned>(ceil_div(params.num_rows, rows_of_cta)),
                        rows_of_cta * threads_of_row, 0, stream, params, "rms_norm");
                  });
}

void launch_silu_mul(const SiluMulParams& params, void* stream) {
  const int num_groups = num_groups_of(params.num_columns);
  if (params.num_rows == 0 || num_groups == 0) return;
  // Parts of a row that are equally large.
  const int num_parts = ceil_div(num_groups, kMaxThreads);
  const dim3 grid(static_cast<unsigned>(params.num_rows), static_cast<unsigned>(num_parts));
  launch_for_rows(params.aligned, {params.gate.element, params.up.element, params.out.element},
                  [&]<class Row> {
                    launch_dependent<SiluMulParams>(silu_mul_kernel<Row>, grid,
                                                    num_threads_for(ceil_div(num_groups, num_parts)), 0,
                                                    stream, params, "silu_mul");
                  });
}

}  // namespace attend::kernels::cuda
