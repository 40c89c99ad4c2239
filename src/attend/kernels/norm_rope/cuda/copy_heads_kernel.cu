// Copies heads of another size: heads that are no multiple of eight are padded for attention, and cut after
// it.
//
//   tile        the heads of one token per CTA
//   warps       4, all alike: a thread has every 128th element
//   registers   few
//   shared      none
//   bytes       each head read and written once
//   bound       latency: a few KB per token
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Waits before it allows the next kernel, attention or a store, to start, since that kernel may read early.
__global__ void __launch_bounds__(kThreads)
    copy_heads_kernel(const __grid_constant__ CopyHeadsParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int64_t token = blockIdx.x;
  const int count = params.num_heads * params.to_dim;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const int head = i / params.to_dim, d = i % params.to_dim;
    const int64_t at = token * params.from.outer_stride + head * params.from.inner_stride + d;
    store_element(params.to.data, token * params.to.outer_stride + head * params.to.inner_stride + d,
                  params.to.element,
                  d < params.from_dim ? load_element(params.from.data, at, params.from.element) : 0.0f);
  }
}

}  // namespace

void launch_copy_heads(const CopyHeadsParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<CopyHeadsParams>(copy_heads_kernel, dim3(static_cast<unsigned>(params.num_tokens)),
                                    kThreads, 0, stream, params, "copy_heads");
}

}  // namespace attend::kernels::cuda
