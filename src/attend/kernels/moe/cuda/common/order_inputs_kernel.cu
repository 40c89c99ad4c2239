// Reorders inputs of experts to the column order of their weights (act-order).
//
//   tile        256 inputs of a row
//   warps       8, all alike: one input per thread
//   registers   few
//   shared      4 bytes: the row's expert
//   bytes       rows read and written once; the expert's order once per row
//   bound       latency for few rows, then scattered 2-byte reads
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    order_inputs_kernel(const __grid_constant__ OrderInputsParams params) {
  __shared__ int row_expert;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const auto row = static_cast<int>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < params.num_experts; i += kThreads)
    if (params.first_row[i] <= row && row < params.first_row[i + 1]) row_expert = i;
  __syncthreads();
  const int input = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (input >= params.in_features) return;
  const int64_t from = params.row_token != nullptr ? params.row_token[row] : row;
  const int column = params.order[int64_t{row_expert} * params.in_features + input];
  store_element(params.to, int64_t{row} * params.in_features + input, params.element,
                load_element(params.from, from * params.in_features + column, params.element));
}

}  // namespace

void launch_order_inputs(const OrderInputsParams& params, void* stream) {
  launch_dependent<OrderInputsParams>(
      order_inputs_kernel,
      dim3(static_cast<unsigned>(params.num_rows),
           static_cast<unsigned>((params.in_features + kThreads - 1) / kThreads)),
      kThreads, 0, stream, params, "moe_experts: inputs");
}

}  // namespace attend::kernels::cuda
