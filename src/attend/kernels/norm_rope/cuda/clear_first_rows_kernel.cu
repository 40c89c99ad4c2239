// Clears the rows of tokens at position 0: multi-token prediction layers that read no embedding there.
//
//   tile        one row per CTA
//   warps       4, all alike: a thread has every 128th element
//   registers   few
//   shared      none
//   bytes       one position per row; a cleared row written once
//   bound       latency
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    clear_first_rows_kernel(const __grid_constant__ ClearFirstRowsParams params) {
  ptx::launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t row = blockIdx.x;
  if (params.positions[row] != 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_columns; i += kThreads)
    store_element(params.x.data, row * params.x.outer_stride + i, params.x.element, 0.0f);
}

}  // namespace

void launch_clear_first_rows(const ClearFirstRowsParams& params, void* stream) {
  if (params.num_rows == 0) return;
  launch_dependent<ClearFirstRowsParams>(clear_first_rows_kernel,
                                         dim3(static_cast<unsigned>(params.num_rows)), kThreads, 0, stream,
                                         params, "clear_first_rows");
}

}  // namespace attend::kernels::cuda
