// RMSNorm of the heads of q and k, RoPE and the store of K/V into the cache, for any head layout: one warp
// per token and head. norm_rope_groups_kernel.cu is faster if heads can be accessed in groups of eight
// elements.
//
//   tile        1 token x 1 head per warp; lane l has pairs l, l + 32, ...
//   warps       4, all alike
//   registers   78, or 68 with at most 64 rotated elements
//   shared      none
//   bytes       q, k and v read and written once
//   bound       memory; latency if tokens are few
#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"
#include "attend/kernels/norm_rope/cuda/rotate.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;
// Pairs per lane: the instances are for these numbers and for one.
constexpr int kNarrowPairs = kMaxNarrowRopeHalf / 32, kWidePairs = kMaxRopeHalf / 32;
// Elements of a lane that are not rotated and are loaded together: heads of 256 with 64 rotated elements
// have 6.
constexpr int kKeptRest = 8;

// Elements of pair `i`: neighbors, or elements of a head's first and second half.
template <bool kInterleaved>
__device__ int pair_first(int i) {
  return kInterleaved ? 2 * i : i;
}
template <bool kInterleaved>
__device__ int pair_second(int i, int half) {
  return kInterleaved ? 2 * i + 1 : i + half;
}

// First and second elements of a lane's pairs: pairs lane, lane + 32, ...
template <int kPairs>
struct Halves {
  float first[kPairs] = {}, second[kPairs] = {};
};

// Issues all loads before the first value is used.
template <bool kInterleaved, int kPairs, class T>
__device__ void load_as(const T* from, int half, int lane, Halves<kPairs>& halves) {
  T first[kPairs] = {}, second[kPairs] = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + 32 * j;
    if (i >= half) break;
    first[j] = from[pair_first<kInterleaved>(i)];
    second[j] = from[pair_second<kInterleaved>(i, half)];
  }
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    halves.first[j] = static_cast<float>(first[j]);
    halves.second[j] = static_cast<float>(second[j]);
  }
}
template <bool kInterleaved, int kPairs>
__device__ Halves<kPairs> load_halves(const void* data, int64_t begin, Element element, int half, int lane) {
  Halves<kPairs> halves;
  if (element == Element::kBF16)
    load_as<kInterleaved>(static_cast<const __nv_bfloat16*>(data) + begin, half, lane, halves);
  else if (element == Element::kF16)
    load_as<kInterleaved>(static_cast<const __half*>(data) + begin, half, lane, halves);
  else
    load_as<kInterleaved>(static_cast<const float*>(data) + begin, half, lane, halves);
  return halves;
}

// Elements lane, lane + 32, ... from `begin` on, of `count`.
template <class T>
__device__ void load_rest_as(const T* from, int count, int lane, float (&rest)[kKeptRest]) {
  T raw[kKeptRest] = {};
#pragma unroll
  for (int j = 0; j < kKeptRest; ++j)
    if (lane + 32 * j < count) raw[j] = from[lane + 32 * j];
#pragma unroll
  for (int j = 0; j < kKeptRest; ++j) rest[j] = static_cast<float>(raw[j]);
}
__device__ void load_rest(const void* data, int64_t begin, Element element, int count, int lane,
                          float (&rest)[kKeptRest]) {
  if (element == Element::kBF16)
    load_rest_as(static_cast<const __nv_bfloat16*>(data) + begin, count, lane, rest);
  else if (element == Element::kF16)
    load_rest_as(static_cast<const __half*>(data) + begin, count, lane, rest);
  else
    load_rest_as(static_cast<const float*>(data) + begin, count, lane, rest);
}

__device__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// The norm sums the squares of pairs in the order of HeadLane.
__device__ void store_v(const NormRopeParams& params, int64_t token, int head, int lane) {
  const StoreRows& rows = params.store.rows[1];
  const CacheRow cache(params.store, 1, load_slot(params.store, token), head);
  const int64_t from = token * rows.from.token_stride + head * rows.from.head_stride;
  const auto load = [&](int d) { return load_element(rows.from.data, from + d, rows.from_element); };
  float scale = 1.0f;
  if (params.norm_v) {
    const int half = rows.head_dim / 2;
    float sum = 0.0f;
    for (int i = lane; i < half; i += 32) sum += pair_squares(load(i), load(i + half));
    scale = norm_scale(warp_sum(sum), rows.head_dim, params.eps);
  }
  // The cache stores the values that a normalized v in memory would have.
#pragma unroll 4
  for (int d = lane; d < rows.head_dim; d += 32)
    cache.write(d, params.norm_v ? rounded(load(d) * scale, rows.from_element) : load(d));
}

// Lane of the warp that normalizes and rotates one head of one token.
template <bool kInterleaved, int kPairs>
class HeadLane {
 public:
  // Reads the angles of the token's position and the norm weights before the wait. Kernels of a step do not
  // write them, except dynamic_angles at its start. The product of q and k, which runs in between, allows
  // this kernel to start only after its own wait.
  __device__ HeadLane(const NormRopeParams& params, const RopeHeads& heads, int64_t token, int head, int lane)
      : params_(params),
        heads_(heads),
        begin_(token * heads.token_stride + head * heads.head_stride),
        lane_(lane) {
    const int64_t position = params.half > 0 ? params.positions[token] : 0;
    const float *const cos = params.cos + position * params.cos_stride, *const sin =
                                                                            params.sin +
                                                                            position * params.sin_stride;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + 32 * j;
      if (i >= params.half) break;
      cos_[j] = cos[i];
      sin_[j] = sin[i];
    }
    if (heads.norm.data != nullptr) {
      weights_ = load_halves<kInterleaved, kPairs>(heads.norm.data, 0, heads.norm.element, params.half, lane);
      load_rest(heads.norm.data, 2 * params.half, heads.norm.element, num_rest(), lane, rest_weights_);
    }
  }

  // Calls write(d, value) for each of the head's elements that changes, or for all elements if `all`. Without
  // norm_after_rope the last factor is 1, which changes no bit.
  template <class Write>
  __device__ void normalize_and_rotate(bool all, const Write& write) const {
    Halves<kPairs> x =
        load_halves<kInterleaved, kPairs>(heads_.data, begin_, heads_.element, params_.half, lane_);
    float kept[kKeptRest];
    load_rest(heads_.data, begin_ + 2 * params_.half, heads_.element, num_rest(), lane_, kept);
    const bool has_weights = heads_.norm.data != nullptr;
    const bool normalize = has_weights && !params_.norm_after_rope;
    const float scale = normalize ? head_norm_scale(x, kept, [](float value, float) { return value; }) : 1.0f;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane_ + 32 * j;
      if (i >= params_.half) break;
      const float a = normalize ? x.first[j] * scale * weights_.first[j] : x.first[j];
      const float b = normalize ? x.second[j] * scale * weights_.second[j] : x.second[j];
      const float2 pair = rotated(a, b, cos_[j], sin_[j]);
      x.first[j] = pair.x;
      x.second[j] = pair.y;
    }
    // Elements that are not rotated.
    const auto rest = [&](float value, float weight) { return normalize ? value * scale * weight : value; };
    const float scale_after_rope = params_.norm_after_rope ? head_norm_scale(x, kept, rest) : 1.0f;
    const bool weighs = has_weights && params_.norm_after_rope;
    const auto final_factor = [&](float weight) {
      return weighs ? scale_after_rope * weight : scale_after_rope;
    };
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane_ + 32 * j;
      if (i >= params_.half) break;
      write(pair_first<kInterleaved>(i), x.first[j] * final_factor(weights_.first[j]));
      write(pair_second<kInterleaved>(i, params_.half), x.second[j] * final_factor(weights_.second[j]));
    }
    if (!all && !normalize && !params_.norm_after_rope) return;
    for_each_rest(kept, [&](int d, float value, float weight) {
      write(d, rest(value, weight) * final_factor(weight));
    });
  }
  __device__ void store(int d, float value) const {
    store_element(heads_.data, begin_ + d, heads_.element, value);
  }

 private:
  __device__ int num_rest() const { return params_.head_dim - 2 * params_.half; }

  // Calls visit(d, element, norm weight) for this lane's elements that are not rotated. `kept`: the first
  // ones.
  template <class Visit>
  __device__ void for_each_rest(const float (&kept)[kKeptRest], const Visit& visit) const {
    const int first = 2 * params_.half + lane_;
#pragma unroll
    for (int j = 0; j < kKeptRest; ++j)
      if (first + 32 * j < params_.head_dim) visit(first + 32 * j, kept[j], rest_weights_[j]);
    for (int d = first + 32 * kKeptRest; d < params_.head_dim; d += 32)
      visit(d, load_element(heads_.data, begin_ + d, heads_.element),
            heads_.norm.data != nullptr ? load_element(heads_.norm.data, d, heads_.norm.element) : 1.0f);
  }

  // Returns the norm scale of the head, from its pairs and from rest(element, norm weight) of the elements
  // that are not rotated.
  template <class Rest>
  __device__ float head_norm_scale(const Halves<kPairs>& x, const float (&kept)[kKeptRest],
                                   const Rest& rest) const {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) sum += pair_squares(x.first[j], x.second[j]);
    for_each_rest(kept, [&](int, float element, float weight) {
      const float value = rest(element, weight);
      sum += value * value;
    });
    return norm_scale(warp_sum(sum), params_.head_dim, params_.eps);
  }

  const NormRopeParams& params_;
  const RopeHeads& heads_;
  int64_t begin_;
  int lane_;
  float cos_[kPairs] = {}, sin_[kPairs] = {};
  Halves<kPairs> weights_;
  float rest_weights_[kKeptRest] = {};
};

// One warp per token and head. `kPairs`: pairs per lane, rounded up.
template <bool kInterleaved, int kPairs>
__global__ void __launch_bounds__(32 * kWarps, kPairs > kNarrowPairs ? 4 : 6)
    norm_rope_kernel(const __grid_constant__ NormRopeParams params) {
  ptx::launch_dependents();
  const bool stores = params.store.slots != nullptr;
  const int num_q = params.heads[0].num_heads, num_k = params.heads[1].num_heads;
  const int num_heads = num_q + (stores ? 2 : 1) * num_k;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32, head = static_cast<int>(row % num_heads);
  const int64_t token = row / num_heads;
  if (token >= params.num_tokens) return ptx::griddepcontrol_wait();
  if (head >= num_q + num_k) {
    ptx::griddepcontrol_wait();
    return store_v(params, token, head - num_q - num_k, lane);
  }
  const bool is_q = head < num_q;
  const RopeHeads& heads = params.heads[is_q ? 0 : 1];
  const int head_in_kind = is_q ? head : head - num_q;
  const HeadLane<kInterleaved, kPairs> head_lane(params, heads, token, head_in_kind, lane);
  ptx::griddepcontrol_wait();
  if (!is_q && stores) {
    const CacheRow cache(params.store, 0, load_slot(params.store, token), head_in_kind);
    // The cache stores the values that a read of k would return.
    head_lane.normalize_and_rotate(
        /*all=*/true, [&](int d, float value) { cache.write(d, rounded(value, heads.element)); });
  } else {
    head_lane.normalize_and_rotate(/*all=*/false, [&](int d, float value) { head_lane.store(d, value); });
  }
}

}  // namespace

void launch_norm_rope(const NormRopeParams& params, bool interleaved, void* stream) {
  const int64_t num_kinds = params.store.slots != nullptr ? 2 : 1;
  const int64_t num_heads = params.heads[0].num_heads + num_kinds * params.heads[1].num_heads;
  const int64_t num_rows = params.num_tokens * num_heads;
  if (num_rows == 0) return;
  if (!interleaved && supports_groups(params)) return launch_norm_rope_groups(params, stream);
  const bool few = params.half <= 32;
  const auto kernel = interleaved ? (few ? norm_rope_kernel<true, 1> : norm_rope_kernel<true, kNarrowPairs>)
                      : few       ? norm_rope_kernel<false, 1>
                      : params.half <= kMaxNarrowRopeHalf ? norm_rope_kernel<false, kNarrowPairs>
                                                          : norm_rope_kernel<false, kWidePairs>;
  launch_dependent<NormRopeParams>(kernel, static_cast<unsigned>((num_rows + kWarps - 1) / kWarps),
                                   32 * kWarps, 0, stream, params, "rope");
}

}  // namespace attend::kernels::cuda
