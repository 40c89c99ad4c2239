// Scales queries by a temperature that depends on the position of their token.
//
//   tile        the heads of one token per CTA
//   warps       4, all alike: a thread has every 128th element
//   registers   few
//   shared      none
//   bytes       q read and written once
//   bound       latency: a few KB per token
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Waits before it allows the next kernel, attention, to start, since that kernel may read the cache early.
__global__ void __launch_bounds__(kThreads)
    scale_by_position_kernel(const __grid_constant__ ScaleByPositionParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t token = blockIdx.x;
  const float steps = floorf(static_cast<float>(params.positions[token] + params.first) / params.floor_scale);
  const float scale = 1.0f + params.slope * log1pf(steps);
  const int count = params.num_heads * params.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int64_t at =
        token * params.token_stride + i / params.head_dim * params.head_stride + i % params.head_dim;
    store_element(params.x, at, params.element, load_element(params.x, at, params.element) * scale);
  }
}

}  // namespace

void launch_scale_by_position(const ScaleByPositionParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<ScaleByPositionParams>(scale_by_position_kernel,
                                          dim3(static_cast<unsigned>(params.num_tokens)), kThreads, 0, stream,
                                          params, "scale_by_position");
}

}  // namespace attend::kernels::cuda
