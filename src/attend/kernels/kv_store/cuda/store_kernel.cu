#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"
#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/kv_store/cuda/store_rows.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// One CTA per token and kind of rows.
__global__ void __launch_bounds__(kThreads) store_kernel(const __grid_constant__ StoreParams params) {
  ptx::griddepcontrol_wait();
  const int token = static_cast<int>(blockIdx.x);
  int slot = params.slots[token];
  if (slot >= 0 && params.slot_map != nullptr) slot = params.slot_map[slot];
  if (slot < 0) return;
  store_rows(params, token, slot, static_cast<int>(blockIdx.y));
}

// One CTA per token.
__global__ void __launch_bounds__(kScaledThreads)
    store_scaled_kernel(const __grid_constant__ StoreParams params) {
  ptx::griddepcontrol_wait();
  const int token = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  int slot = params.slots[token];
  if (slot >= 0 && params.slot_map != nullptr) slot = params.slot_map[slot];
  if (slot < 0) return;
  const auto& [latent, rope] = params.rows;
  uint8_t* const row = static_cast<uint8_t*>(latent.to) + slot / params.page_size * latent.page_stride +
                       slot % params.page_size * latent.token_stride;
  const auto load = [&](const StoreRows& rows, int d) {
    return load_element(rows.from.data, token * rows.from.token_stride + d, rows.from_element) / rows.scale;
  };
  float numbers[4];
  for (int i = 0; i < 4; ++i) numbers[i] = load(latent, 4 * thread + i);
  store_scaled(row, thread, numbers);
  if (thread < rope.head_dim) store_element(row + kScaledRopeAt, thread, Element::kBF16, load(rope, thread));
}

}  // namespace

void launch_store_scaled(const StoreParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<StoreParams>(store_scaled_kernel, dim3(static_cast<unsigned>(params.num_tokens)),
                                kScaledThreads, 0, stream, params, "store of scaled rows");
}

void launch_store(const StoreParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  launch_dependent<StoreParams>(store_kernel, dim3(static_cast<unsigned>(params.num_tokens), 2), kThreads, 0,
                                stream, params, "store");
}

}  // namespace attend::kernels::cuda
