#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/kv_store/cuda/store_rows.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// A CTA per token and kind of rows.
__global__ void __launch_bounds__(kThreads) store_kernel(const __grid_constant__ StoreParams params) {
  ptx::griddepcontrol_wait();
  const int token = static_cast<int>(blockIdx.x);
  int slot = params.slots[token];
  if (slot >= 0 && params.slot_map != nullptr) slot = params.slot_map[slot];
  if (slot < 0) return;
  store_rows(params, token, slot, static_cast<int>(blockIdx.y));
}

}  // namespace

void launch_store(const StoreParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<StoreParams>(store_kernel, dim3(static_cast<unsigned>(params.num_tokens), 2), kThreads, 0,
                                stream, params, "store");
}

}  // namespace attend::kernels::cuda
