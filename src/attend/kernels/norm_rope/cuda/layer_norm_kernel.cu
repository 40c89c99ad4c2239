// LayerNorm of a row, or of the sum of two rows.
//
//   tile        one row per CTA
//   warps       1 to 16, all alike, one or several groups of eight elements per thread
//   registers   at most 128
//   shared      64 bytes for a sum
//   bytes       x and addend read three times, the second and third time from L1; the row written once
//   bound       memory; latency if rows are few
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"
#include "attend/kernels/norm_rope/cuda/row_kernels.cuh"

namespace attend::kernels::cuda {
namespace {

__device__ UnalignedRow make_row(const DeviceVector& vector, int row, int dim, bool aligned) {
  return UnalignedRow({const_cast<void*>(vector.data), dim, 0, 1, vector.element}, row, dim, aligned);
}

template <class Row>
__global__ void __launch_bounds__(kMaxNormThreads, 1)
    layer_norm_kernel(const __grid_constant__ LayerNormParams params) {
  ptx::launch_dependents();
  const auto row_at = [&](const DeviceRows& rows) {
    return Row(rows, blockIdx.x, params.dim, params.aligned);
  };
  const Row x = row_at(params.x), addend = row_at(params.addend), out = row_at(params.out);
  const bool adds = params.addend.data != nullptr;
  // Weights may have another dtype than the rows.
  const int head = static_cast<int>(blockIdx.x) % params.num_heads;
  const UnalignedRow weight = make_row(params.weight, head, params.dim, params.weight_aligned),
                     bias = make_row(params.bias, 0, params.dim, params.weight_aligned);
  const int num_groups = num_element_groups(params.dim), num_threads = static_cast<int>(blockDim.x);
  const auto load = [&](int g, Group& group) {
    Row::convert(x.load(g), group);
    if (!adds) return;
    Group other;
    Row::convert(addend.load(g), other);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] += other[i];
  };
  ptx::griddepcontrol_wait();
  float sum = 0.0f;
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += num_threads) {
    Group group;
    load(g, group);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum += group[i];  // past the row's end: 0
  }
  const float mean = cta_sum(sum) / static_cast<float>(params.dim);
  float squares = 0.0f;
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += num_threads) {
    Group group;
    load(g, group);
    const int num_left = params.dim - g * kGroupElements;
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) {
      const float from_mean = i < num_left ? group[i] - mean : 0.0f;
      squares = fmaf(from_mean, from_mean, squares);
    }
  }
  __syncthreads();  // all threads have read the parts of the first sum
  const float scale = 1.0f / sqrtf(cta_sum(squares) / static_cast<float>(params.dim) + params.eps);
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += num_threads) {
    Group group, weights, biases;
    load(g, group);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) weights[i] = 1.0f, biases[i] = 0.0f;
    if (params.weight.data != nullptr) UnalignedRow::convert(weight.load(g), weights);
    if (params.bias.data != nullptr) UnalignedRow::convert(bias.load(g), biases);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i)
      group[i] = fmaf((group[i] - mean) * scale, weights[i], biases[i]);
    out.store(g, group);
  }
}

}  // namespace

void launch_layer_norm(const LayerNormParams& params, void* stream) {
  if (params.num_rows == 0) return;
  const Element addend = params.addend.data == nullptr ? params.x.element : params.addend.element;
  launch_for_rows(params.aligned, {params.x.element, addend, params.out.element}, [&]<class Row> {
    launch_dependent<LayerNormParams>(layer_norm_kernel<Row>, static_cast<unsigned>(params.num_rows),
                                      num_threads_for(num_element_groups(params.dim), kMaxNormThreads), 0,
                                      stream, params, "layer_norm");
  });
}

}  // namespace attend::kernels::cuda
