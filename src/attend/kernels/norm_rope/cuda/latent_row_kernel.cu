// A token's latent row: norm of its first part, rotation of the other, store; and the rotation of q.
//
//   tile        1 token a CTA, or kLatentHeads heads of q's latent part that are rounded
//   warps       4, all alike
//   shared      one sum for each warp
//   bytes       kv_a twice in and once out, the cache row out, q's rotated part in and out
//   bound       bytes; for few tokens latency
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"
#include "attend/kernels/norm_rope/cuda/latent_row_kernel.h"
#include "attend/kernels/norm_rope/rotate.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128, kLanes = 32;
static_assert(kThreads == kScaledThreads);

__device__ float sum_of_cta(float value) {
  __shared__ float warp_sums[kThreads / kLanes];
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % kLanes == 0) warp_sums[threadIdx.x / kLanes] = value;
  __syncthreads();
  float sum = 0.0f;
  for (const float part : warp_sums) sum += part;
  return sum;
}

// Heads of q whose latent part a CTA rounds.
constexpr int kLatentHeads = 8;

__device__ float rounded_to_e4m3(float value) {
  return from_fp8(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3), __NV_E4M3);
}

__device__ void round_latents(const LatentRowParams& params, int token, int first_head) {
  const int num_heads = min(kLatentHeads, params.num_heads - first_head);
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * params.latent_dim; i += kThreads) {
    const int head = first_head + i / params.latent_dim;
    const int64_t at =
        token * params.q_latent.token_stride + head * params.q_latent.head_stride + i % params.latent_dim;
    store_element(params.q_latent.data, at, params.element,
                  rounded_to_e4m3(load_element(params.q_latent.data, at, params.element)));
  }
}

// Waits for the launch before it before it lets the next one start, as prefix_ready asks of what stores.
// `kScaled`: of params.scaled_rows.
template <bool kScaled>
__global__ void __launch_bounds__(kThreads)
    latent_row_kernel(const __grid_constant__ LatentRowParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int token = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  if (blockIdx.y > 0) return round_latents(params, token, (static_cast<int>(blockIdx.y) - 1) * kLatentHeads);
  const int64_t row = token * params.kv_a.token_stride;
  int slot = params.slots[token];
  if (slot >= 0 && params.slot_map != nullptr) slot = params.slot_map[slot];
  const int64_t cache_row =
      slot / params.page_size * params.page_stride + slot % params.page_size * params.token_stride;
  uint8_t* const scaled_row = static_cast<uint8_t*>(params.cache) + cache_row;
  // What is stored is rounded to the type of kv_a first; kv_a then keeps what the cache has.
  const auto rounded = [&](int d, float value) {
    store_element(params.kv_a.data, row + d, params.element, value);
    return load_element(params.kv_a.data, row + d, params.element) / params.scale;
  };
  const auto keep = [&](int d, float value) {
    store_element(params.kv_a.data, row + d, params.element, value * params.scale);
  };
  // Of scaled rows the rotated part.
  const auto write = [&](int d, float value) {
    if constexpr (kScaled) {
      const float stored = rounded(d, value);
      if (slot < 0) return;
      store_element(scaled_row + kScaledRopeAt, d - params.rank, Element::kBF16, stored);
      keep(d, load_scaled(scaled_row, d));
    } else {
      store_element(params.kv_a.data, row + d, params.element, value);
      if (slot < 0) return;
      store_element(params.cache, cache_row + d, params.cache_element,
                    load_element(params.kv_a.data, row + d, params.element) / params.scale);
      store_element(params.kv_a.data, row + d, params.element,
                    load_element(params.cache, cache_row + d, params.cache_element) * params.scale);
    }
  };

  float squares = 0.0f;
  for (int d = thread; d < params.rank; d += kThreads) {
    const float x = load_element(params.kv_a.data, row + d, params.element);
    squares = fmaf(x, x, squares);
  }
  const float factor = 1.0f / sqrtf(sum_of_cta(squares) / static_cast<float>(params.rank) + params.eps);
  const auto normalized = [&](int d) {
    return load_element(params.kv_a.data, row + d, params.element) * factor *
           load_element(params.norm.data, d, params.norm.element);
  };
  if constexpr (kScaled) {
    const int first = 4 * thread;
    float numbers[4];
    for (int i = 0; i < 4; ++i) numbers[i] = rounded(first + i, normalized(first + i));
    if (slot >= 0) {
      store_scaled(scaled_row, thread, numbers);
      for (int i = 0; i < 4; ++i) keep(first + i, numbers[i]);
    }
  } else {
    for (int d = thread; d < params.rank; d += kThreads) write(d, normalized(d));
  }

  const int num_pairs = params.rope_dim / 2;
  const float* const cos = params.cos + params.positions[token] * params.cos_stride;
  const float* const sin = params.sin + params.positions[token] * params.sin_stride;
  // Pairs of k, then those of each head of q: a thread has both elements of a pair.
  for (int i = thread; i < (params.num_heads + 1) * num_pairs; i += kThreads) {
    const int head = i / num_pairs - 1, pair = i % num_pairs;
    const int first = params.interleaved ? 2 * pair : pair;
    const int second = params.interleaved ? first + 1 : pair + num_pairs;
    void* const data = head < 0 ? params.kv_a.data : params.q_rope.data;
    const int64_t begin =
        head < 0 ? row + params.rank : token * params.q_rope.token_stride + head * params.q_rope.head_stride;
    const RotatedPair rotated =
        rotate(load_element(data, begin + first, params.element),
               load_element(data, begin + second, params.element), cos[pair], sin[pair]);
    if (head < 0) {
      write(params.rank + first, rotated.first);
      write(params.rank + second, rotated.second);
    } else {
      // What is rounded to e4m3 was rounded to the type of q first.
      const auto write_q = [&](int64_t at, float value) {
        store_element(data, at, params.element, value);
        if (params.q_latent.data != nullptr)
          store_element(data, at, params.element, rounded_to_e4m3(load_element(data, at, params.element)));
      };
      write_q(begin + first, rotated.first);
      write_q(begin + second, rotated.second);
    }
  }
}

}  // namespace

void launch_latent_row(const LatentRowParams& params, void* stream) {
  if (params.num_tokens == 0) return;
  const auto kernel = params.scaled_rows ? latent_row_kernel<true> : latent_row_kernel<false>;
  const int head_ctas =
      params.q_latent.data == nullptr ? 0 : (params.num_heads + kLatentHeads - 1) / kLatentHeads;
  const dim3 grid(static_cast<unsigned>(params.num_tokens), static_cast<unsigned>(1 + head_ctas));
  launch_dependent<LatentRowParams>(kernel, grid, kThreads, 0, stream, params, "latent_norm_rope_store");
}

}  // namespace attend::kernels::cuda
