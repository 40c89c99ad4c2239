#include "attend/kernels/cuda/element.cuh"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/cuda/store_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// A CTA per token and kind of rows.
__global__ void __launch_bounds__(kThreads) store_kernel(const __grid_constant__ StoreParams params) {
  ptx::wait_for_previous_kernel();
  const int token = static_cast<int>(blockIdx.x);
  int slot = params.slots[token];
  if (slot >= 0 && params.slot_map != nullptr) slot = params.slot_map[slot];
  if (slot < 0) return;
  const StoreRows& rows = params.rows[blockIdx.y];
  const int64_t to_row =
      slot / params.page_size * rows.page_stride + slot % params.page_size * rows.token_stride;
  for (int i = threadIdx.x; i < params.num_heads * rows.head_dim; i += kThreads) {
    const int head = i / rows.head_dim, d = i % rows.head_dim;
    const float value = load_element(
        rows.from.data, token * rows.from.token_stride + head * rows.from.head_stride + d, rows.from_element);
    store_element(rows.to, to_row + head * rows.head_stride + rows.first_column + d, rows.to_element,
                  value / rows.scale);
  }
}

}  // namespace

void launch_store(const StoreParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<StoreParams>(store_kernel, dim3(static_cast<unsigned>(params.num_tokens), 2), kThreads, 0,
                                stream, params, "store");
}

}  // namespace attend::kernels::cuda
