// The sum of what a token's experts gave, weighted.
//
//   tile        a token a CTA
//   warps       4, all alike: a thread has every 128th feature
//   registers   few
//   shared      none
//   bytes       top_k rows, and the sum
//   bound       reading the rows
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/moe/cuda/common/moe_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ CombineParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t token = blockIdx.x;
  const int32_t* const rows = params.row_of_pair + token * params.top_k;
  const float* const weights = params.weights != nullptr ? params.weights + token * params.top_k : nullptr;
  for (int i = static_cast<int>(threadIdx.x); i < params.hidden_size; i += kThreads) {
    float sum = 0.0f;
    for (int rank = 0; rank < params.top_k; ++rank)
      sum =
          fmaf(weights != nullptr ? weights[rank] : 1.0f,
               load_element(params.rows, int64_t{rows[rank]} * params.hidden_size + i, params.element), sum);
    const int64_t to = token * params.hidden_size + i;
    if (params.accumulate) sum += load_element(params.out, to, params.element);
    store_element(params.out, to, params.element, sum);
  }
}

}  // namespace

void launch_combine(const CombineParams& params, void* stream) {
  launch_dependent<CombineParams>(combine_kernel, dim3(static_cast<unsigned>(params.num_tokens)), kThreads, 0,
                                  stream, params, "moe_experts: combine");
}

}  // namespace attend::kernels::cuda
