// residual += RMSNorm of x: the norm after a sublayer.
//
//   tile        one row per CTA
//   warps       1 to 16, all alike, one or several groups of eight elements per thread
//   registers   48 to 56
//   shared      64 bytes for the sum of the norm
//   bytes       x read twice, the second time from L1; residual read and written once
//   bound       memory; latency if rows are few
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"
#include "attend/kernels/norm_rope/cuda/row_kernels.cuh"

namespace attend::kernels::cuda {
namespace {

template <class Row>
__global__ void __launch_bounds__(kMaxNormThreads, 1)
    rms_norm_add_kernel(const __grid_constant__ NormAddParams params) {
  ptx::launch_dependents();
  const Row x(params.x, blockIdx.x, params.dim, params.aligned),
      residual(params.residual, blockIdx.x, params.dim, params.aligned);
  // Weights may have another dtype than the rows.
  const UnalignedRow weight({const_cast<void*>(params.weight.data), 0, 0, 1, params.weight.element}, 0,
                            params.dim, params.weight_aligned);
  const int num_groups = num_element_groups(params.dim), num_threads = static_cast<int>(blockDim.x);
  ptx::griddepcontrol_wait();
  float sum = 0.0f;
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += num_threads) {
    Group group;
    Row::convert(x.load(g), group);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) sum = fmaf(group[i], group[i], sum);
  }
  const float scale = 1.0f / sqrtf(cta_sum(sum) / static_cast<float>(params.dim) + params.eps);
  for (int g = static_cast<int>(threadIdx.x); g < num_groups; g += num_threads) {
    const typename Row::Bits x_bits = x.load(g), residual_bits = residual.load(g);
    Group group, before, weights;
    Row::convert(x_bits, group);
    Row::convert(residual_bits, before);
    UnalignedRow::convert(weight.load(g), weights);
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) before[i] += x.rounded(group[i] * (scale * weights[i]));
    residual.store(g, before);
  }
}

}  // namespace

void launch_rms_norm_add(const NormAddParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_for_rows(params.aligned, {params.x.element, params.residual.element}, [&]<class Row> {
    launch_dependent<NormAddParams>(rms_norm_add_kernel<Row>, static_cast<unsigned>(params.num_rows),
                                    num_threads_for(num_element_groups(params.dim), kMaxNormThreads), 0,
                                    stream, params, "rms_norm_add");
  });
}

}  // namespace attend::kernels::cuda
