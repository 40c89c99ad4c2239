// Latent row of a token: norm of its first part, rotation of the other, store; and the rotation of q.
//
//   tile        one CTA for the norm of a token's row, one for its rotated part, and CTAs for heads of q,
//               8 heads or one each
//   warps       4, all alike
//   shared      one sum per warp
//   bytes       kv_a read twice and written once, the cache row written, q's rotated part read and written
//   bound       bytes; for few tokens latency
#include <algorithm>

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/round_element.cuh"
#include "attend/kernels/kv_store/cuda/scaled_rows.cuh"
#include "attend/kernels/norm_rope/cuda/latent_row_kernel.h"
#include "attend/kernels/norm_rope/rotate.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 128, kLanes = 32;
constexpr int kMinCtasPerSm = 8;  // without a minimum, ptxas spills to reach more
// If tokens are too few to keep the GPU busy, heads of q are distributed over CTAs.
constexpr int kFewTokens = 256, kHeadsPerCta = 8;
static_assert(kThreads == kScaledThreads);

__device__ float cta_sum_of_squares(float value) {
  __shared__ float warp_sums[kThreads / kLanes];
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % kLanes == 0) warp_sums[threadIdx.x / kLanes] = value;
  __syncthreads();
  float sum = 0.0f;
  for (const float part : warp_sums) sum += part;
  return sum;
}

__device__ RotatedPair load_rotated(const LatentRowParams& params, const void* data, int64_t first,
                                    int64_t second, int token, int pair) {
  const float a = load_element(data, first, params.element);
  const float b = load_element(data, second, params.element);
  if (params.cos == nullptr) return {a, b};
  const int position = params.positions[token];
  const int64_t angle = position * params.cos_stride + pair, sin_idx = position * params.sin_stride + pair;
  return rotate(a, b, params.cos[angle], params.sin[sin_idx]);
}

// Elements of a pair within its part.
__device__ int rope_first(const LatentRowParams& params, int pair) {
  return params.interleaved ? 2 * pair : pair;
}
__device__ int rope_partner(const LatentRowParams& params, int pair) {
  return params.interleaved ? 2 * pair + 1 : pair + params.rope_dim / 2;
}

// Values are rounded to the dtype of q before they are rounded to e4m3.
__device__ void store_q(const LatentRowParams& params, void* q, int64_t at, float value) {
  if (params.q_latent.data != nullptr)
    value = round_element(round_element(value, params.element), Element::kF8E4M3);
  store_element(q, at, params.element, value);
}

// Rotates heads of q from `first_head`.
__device__ void rotate_heads(const LatentRowParams& params, int token, int first_head) {
  const int num_pairs = params.rope_dim / 2;
  const int num_heads = min(params.heads_per_cta, params.num_heads - first_head);
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * num_pairs; i += kThreads) {
    const int pair = i % num_pairs;
    const int64_t begin =
        token * params.q_rope.token_stride + (first_head + i / num_pairs) * params.q_rope.head_stride;
    const int64_t first = begin + rope_first(params, pair), second = begin + rope_partner(params, pair);
    const RotatedPair rotated = load_rotated(params, params.q_rope.data, first, second, token, pair);
    store_q(params, params.q_rope.data, first, rotated.first);
    store_q(params, params.q_rope.data, second, rotated.second);
  }
}

// Rounds the latent parts of the same heads.
__device__ void round_latents(const LatentRowParams& params, int token, int first_head) {
  const int num_heads = min(params.heads_per_cta, params.num_heads - first_head);
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * params.latent_dim; i += kThreads) {
    const int64_t head = first_head + i / params.latent_dim;
    const int64_t at =
        token * params.q_latent.token_stride + head * params.q_latent.head_stride + i % params.latent_dim;
    store_q(params, params.q_latent.data, at, load_element(params.q_latent.data, at, params.element));
  }
}

// Row of a token, in kv_a and in the cache. `kScaled`: params.scaled_rows.
template <bool kScaled>
class LatentRow {
 public:
  __device__ LatentRow(const LatentRowParams& params, int token)
      : params_(params), token_(token), row_(token * params.kv_a.token_stride), slot_(params.slots[token]) {
    if (slot_ >= 0 && params.slot_map != nullptr) slot_ = params.slot_map[slot_];
    cache_row_ =
        slot_ / params.page_size * params.page_stride + slot_ % params.page_size * params.token_stride;
  }

  __device__ void norm() const {
    float squares = 0.0f;
    for (int d = thread(); d < params_.rank; d += kThreads) {
      const float x = load_element(params_.kv_a.data, row_ + d, params_.element);
      squares = fmaf(x, x, squares);
    }
    const float factor =
        1.0f / sqrtf(cta_sum_of_squares(squares) / static_cast<float>(params_.rank) + params_.eps);
    const auto normalized = [&](int d) {
      return load_element(params_.kv_a.data, row_ + d, params_.element) * factor *
             load_element(params_.norm.data, d, params_.norm.element);
    };
    if (!kScaled || slot_ < 0) {
      for (int d = thread(); d < params_.rank; d += kThreads)
        write(d, normalized(d), params_.cache, cache_row_ + d, params_.cache_element);
      return;
    }
    const int first = 4 * thread();
    float numbers[4];
    for (int i = 0; i < 4; ++i) numbers[i] = to_store(normalized(first + i));
    store_scaled(scaled_row(), thread(), numbers);
    for (int i = 0; i < 4; ++i) keep(first + i, numbers[i] * params_.scale);
  }

  __device__ void rotate() const {
    for (int pair = thread(); pair < params_.rope_dim / 2; pair += kThreads) {
      const int first = rope_first(params_, pair), second = rope_partner(params_, pair);
      const int64_t begin = row_ + params_.rank;
      const RotatedPair rotated =
          load_rotated(params_, params_.kv_a.data, begin + first, begin + second, token_, pair);
      write_rotated(first, rotated.first);
      write_rotated(second, rotated.second);
    }
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ uint8_t* scaled_row() const { return static_cast<uint8_t*>(params_.cache) + cache_row_; }

  // Stored values are rounded to the dtype of kv_a first; kv_a then keeps the values of the cache.
  __device__ float to_store(float value) const {
    return round_element(value, params_.element) / params_.scale;
  }
  __device__ void keep(int d, float value) const {
    store_element(params_.kv_a.data, row_ + d, params_.element, value);
  }
  __device__ void write(int d, float value, void* cache, int64_t to, Element element) const {
    if (slot_ < 0) return keep(d, value);
    const float number = to_store(value);
    store_element(cache, to, element, number);
    keep(d, round_element(number, element) * params_.scale);
  }
  __device__ void write_rotated(int d, float value) const {
    if constexpr (kScaled)
      write(params_.rank + d, value, scaled_row() + kScaledRopeAt, d, Element::kBF16);
    else
      write(params_.rank + d, value, params_.cache, cache_row_ + params_.rank + d, params_.cache_element);
  }

  const LatentRowParams& params_;
  const int token_;
  const int64_t row_;
  int slot_;
  int64_t cache_row_;
};

// Waits for the previous kernel before it allows the next one to start, as prefix_ready requires of kernels
// that store K/V.
template <bool kScaled>
__global__ void __launch_bounds__(kThreads, kMinCtasPerSm)
    latent_row_kernel(const __grid_constant__ LatentRowParams params) {
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  const int token = static_cast<int>(blockIdx.x), part = static_cast<int>(blockIdx.y);
  if (part >= 2) {
    const int first_head = (part - 2) * params.heads_per_cta;
    rotate_heads(params, token, first_head);
    if (params.q_latent.data != nullptr) round_latents(params, token, first_head);
    return;
  }
  const LatentRow<kScaled> row(params, token);
  if (part == 0)
    row.norm();
  else
    row.rotate();
}

}  // namespace

void launch_latent_row(LatentRowParams params, void* stream) {
  if (params.num_tokens == 0) return;
  const auto kernel = params.scaled_rows ? latent_row_kernel<true> : latent_row_kernel<false>;
  params.heads_per_cta = params.num_tokens > kFewTokens ? std::max(1, params.num_heads) : kHeadsPerCta;
  const int num_head_ctas = (params.num_heads + params.heads_per_cta - 1) / params.heads_per_cta;
  launch_dependent<LatentRowParams>(
      kernel, dim3(static_cast<unsigned>(params.num_tokens), static_cast<unsigned>(2 + num_head_ctas)),
      kThreads, 0, stream, params, "latent_norm_rope_store");
}

}  // namespace attend::kernels::cuda
