// Same bits as norm_rope_kernel.cu, for heads that are rotated completely and can be accessed in groups of
// eight elements.
//
//   tile        1 token and 32 / kLanes of its heads per warp iteration (kLanes = 4 to 32 lanes per head);
//               the next heads' loads are in flight
//   warps       4, all alike; enough warps per token to fill the GPU
//   registers   72 to 80
//   shared      none
//   bytes       q, k and v read and written once, 16 bytes per access
//   bound       memory; latency if tokens are few
#include <algorithm>

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"
#include "attend/kernels/norm_rope/cuda/rotate.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kAllLanes = 0xffffffffu;

using Group = float[kGroupElements];

struct Params {
  NormRopeParams rope;
  int32_t warps_per_token;
};

__host__ __device__ int total_heads(const NormRopeParams& params) {
  return params.heads[0].num_heads + (params.store.slots != nullptr ? 2 : 1) * params.heads[1].num_heads;
}

// Sums the squares of a head's pairs in the order of norm_rope_kernel. There lane l of 32 has pairs l, l +
// 32, ..., and adds the values of the lane 16 further, then 8, 4, 2 and 1. Here lane `lane` of kLanes has the
// eight pairs from 8 * lane.
template <int kLanes>
__device__ float head_squares_sum(Group& squares, int lane) {
#pragma unroll
  for (int j = 0; j < kGroupElements; ++j) {
    if constexpr (kLanes > 4) {
      float sum = 0.0f;
#pragma unroll
      for (int first = 0; first < kLanes; first += 4)
        sum += __shfl_sync(kAllLanes, squares[j], first + lane % 4, kLanes);
      squares[j] = sum;
    }
    for (int step = 2; step > 0; step /= 2) squares[j] += __shfl_xor_sync(kAllLanes, squares[j], step);
  }
#pragma unroll
  for (int step = kGroupElements / 2; step > 0; step /= 2)
#pragma unroll
    for (int j = 0; j < step; ++j) squares[j] += squares[j + step];
  return squares[0];
}

// A lane of the heads of one token: a group of each head's first half, and the group of its second half that
// RoPE rotates with it. kLanes lanes share a head.
template <class T, int kLanes>
class TokenLane {
 public:
  static constexpr int kHeadsAtOnce = 32 / kLanes;
  struct Bits {
    uint4 first = {}, second = {};
  };

  // Reads the angles before the wait, like norm_rope_kernel.
  __device__ TokenLane(const NormRopeParams& params, int64_t token)
      : params_(params),
        num_q_(params.heads[0].num_heads),
        num_k_(params.heads[1].num_heads),
        token_(token),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        pair_(lane_ * kGroupElements),
        has_pairs_(pair_ < params.half) {
    if (!has_pairs_) return;
    const int64_t position = params.positions[token];
    load_group(params.cos, position * params.cos_stride + pair_, Element::kF32, cos_);
    load_group(params.sin, position * params.sin_stride + pair_, Element::kF32, sin_);
  }

  // Called after the wait.
  __device__ void find_slot() {
    if (stores()) slot_ = load_slot(params_.store, token_);
  }

  // Loads head `head` of the concatenation of q, k and v.
  __device__ Bits load(int head) const {
    Bits bits;
    if (!has(head)) return bits;
    const T* const from = head_row(head) + pair_;
    bits.first = *reinterpret_cast<const uint4*>(from);
    bits.second = *reinterpret_cast<const uint4*>(from + params_.half);
    return bits;
  }

  // Called by all lanes of the warp together.
  __device__ void put(int head, const Bits& bits) const {
    Group first, second;
    convert_16_bit_group<T>(bits.first, first);
    convert_16_bit_group<T>(bits.second, second);
    const bool is_v = head >= num_q_ + num_k_;
    const T* const weights = is_v ? nullptr : static_cast<const T*>(find_heads(head).norm.data);
    const bool normalizes_v = is_v && params_.norm_v;
    if (__any_sync(kAllLanes, weights != nullptr || normalizes_v)) {
      const float scale = head_norm_scale(first, second);
      if (weights != nullptr && has_pairs_) normalize(weights, scale, first, second);
      if (normalizes_v) multiply(scale, first, second);
    }
    if (!has(head)) return;
    if (!is_v) rotate_pairs(first, second);
    if (head < num_q_ || !stores())
      store_to_source(head, first, second);
    else
      store_to_cache(head - num_q_ - (is_v ? num_k_ : 0), is_v, first, second);
  }

 private:
  __device__ bool stores() const { return params_.store.slots != nullptr; }
  __device__ bool has(int head) const { return has_pairs_ && head < total_heads(params_); }
  // `head` is a head of q or k.
  __device__ const RopeHeads& find_heads(int head) const { return params_.heads[head < num_q_ ? 0 : 1]; }

  __device__ T* head_row(int head) const {
    if (head >= num_q_ + num_k_) {
      const TokenRows& v = params_.store.rows[1].from;
      return static_cast<T*>(const_cast<void*>(v.data)) + token_ * v.token_stride +
             (head - num_q_ - num_k_) * v.head_stride;
    }
    const RopeHeads& heads = find_heads(head);
    return static_cast<T*>(heads.data) + token_ * heads.token_stride +
           (head < num_q_ ? head : head - num_q_) * heads.head_stride;
  }

  __device__ float head_norm_scale(const Group& first, const Group& second) const {
    Group squares;
#pragma unroll
    for (int j = 0; j < kGroupElements; ++j) squares[j] = pair_squares(first[j], second[j]);
    return norm_scale(head_squares_sum<kLanes>(squares, lane_), params_.head_dim, params_.eps);
  }

  __device__ void normalize(const T* weights, float scale, Group& first, Group& second) const {
    Group first_weights, second_weights;
    load_16_bit_group(weights + pair_, first_weights);
    load_16_bit_group(weights + pair_ + params_.half, second_weights);
#pragma unroll
    for (int j = 0; j < kGroupElements; ++j) {
      first[j] = first[j] * scale * first_weights[j];
      second[j] = second[j] * scale * second_weights[j];
    }
  }

  __device__ static void multiply(float scale, Group& first, Group& second) {
#pragma unroll
    for (int j = 0; j < kGroupElements; ++j) {
      first[j] *= scale;
      second[j] *= scale;
    }
  }

  __device__ void rotate_pairs(Group& first, Group& second) const {
#pragma unroll
    for (int j = 0; j < kGroupElements; ++j) {
      const float2 pair = rotated(first[j], second[j], cos_[j], sin_[j]);
      first[j] = pair.x;
      second[j] = pair.y;
    }
  }

  __device__ void store_to_source(int head, const Group& first, const Group& second) const {
    T* const to = head_row(head) + pair_;
    store_16_bit_group(to, first);
    store_16_bit_group(to + params_.half, second);
  }

  __device__ void store_to_cache(int head, bool is_v, Group& first, Group& second) const {
    const CacheRow cache(params_.store, is_v ? 1 : 0, slot_, head);
    // The cache stores the values that a read of k would return.
#pragma unroll
    for (int j = 0; j < kGroupElements; ++j) {
      first[j] = static_cast<float>(T(first[j]));
      second[j] = static_cast<float>(T(second[j]));
    }
    cache.write_group(pair_, first);
    cache.write_group(pair_ + params_.half, second);
  }

  const NormRopeParams& params_;
  int num_q_, num_k_;
  int64_t token_;
  int lane_, pair_;  // lane among those that share a head; first of its eight pairs
  bool has_pairs_;
  int slot_ = -1;
  Group cos_ = {}, sin_ = {};
};

// Warps iterate over the heads of a token; the lanes of a warp process several heads at once.
template <class T, int kLanes>
__global__ void __launch_bounds__(32 * kWarps)
    norm_rope_groups_kernel(const __grid_constant__ Params params) {
  using Lane = TokenLane<T, kLanes>;
  ptx::launch_dependents();
  const unsigned warp = blockIdx.x * kWarps + threadIdx.x / 32;
  const auto warps_per_token = static_cast<unsigned>(params.warps_per_token);
  const unsigned token = warp / warps_per_token;
  if (token >= static_cast<unsigned>(params.rope.num_tokens)) return ptx::griddepcontrol_wait();
  Lane lane(params.rope, token);
  ptx::griddepcontrol_wait();
  const int step = params.warps_per_token * Lane::kHeadsAtOnce, num_heads = total_heads(params.rope);
  const int first = static_cast<int>(warp % warps_per_token) * Lane::kHeadsAtOnce;
  const int lane_head = static_cast<int>(threadIdx.x) % 32 / kLanes;
  typename Lane::Bits next = lane.load(first + lane_head);
  lane.find_slot();
  for (int head = first; head < num_heads; head += step) {
    const typename Lane::Bits bits = next;
    next = lane.load(head + step + lane_head);
    lane.put(head + lane_head, bits);
  }
}

// Warps that are enough to hide latency. Beyond that, a warp computes several of its token's heads one after
// another, and reads the angles once.
constexpr int64_t kEnoughWarps = 8192;

template <class T, int kLanes>
void launch_groups(const NormRopeParams& params, void* stream) {
  constexpr int kHeadsAtOnce = 32 / kLanes;
  const int64_t num_steps = (total_heads(params) + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int64_t warps_per_token = std::clamp<int64_t>(kEnoughWarps / params.num_tokens, 1, num_steps);
  const int64_t num_ctas = (params.num_tokens * warps_per_token + kWarps - 1) / kWarps;
  launch_dependent<Params>(norm_rope_groups_kernel<T, kLanes>, static_cast<unsigned>(num_ctas), 32 * kWarps,
                           0, stream, {params, static_cast<int32_t>(warps_per_token)}, "rope");
}

template <class T>
void launch_elements(const NormRopeParams& params, void* stream) {
  if (params.half <= 4 * kGroupElements) return launch_groups<T, 4>(params, stream);
  if (params.half <= 8 * kGroupElements) return launch_groups<T, 8>(params, stream);
  if (params.half <= 16 * kGroupElements) return launch_groups<T, 16>(params, stream);
  launch_groups<T, 32>(params, stream);
}

bool divides(int64_t divisor, std::initializer_list<int64_t> values) {
  return std::all_of(values.begin(), values.end(), [=](int64_t value) { return value % divisor == 0; });
}

bool is_aligned(const void* data) {
  return divides(16, {static_cast<int64_t>(reinterpret_cast<uintptr_t>(data))});
}

bool are_groups(const RopeHeads& heads, Element element) {
  if (heads.num_heads == 0) return true;
  return heads.element == element && is_aligned(heads.data) &&
         divides(kGroupElements, {heads.token_stride, heads.head_stride}) &&
         (heads.norm.data == nullptr || (heads.norm.element == element && is_aligned(heads.norm.data)));
}

bool are_groups(const StoreRows& rows, Element element, int head_dim) {
  return rows.from_element == element && rows.head_dim == head_dim && rows.first_column == 0 &&
         is_aligned(rows.from.data) && is_aligned(rows.to) &&
         divides(kGroupElements, {rows.from.token_stride, rows.from.head_stride, rows.page_stride,
                                  rows.token_stride, rows.head_stride});
}

}  // namespace

bool supports_groups(const NormRopeParams& params) {
  constexpr int64_t kAnglesAtOnce = 4;
  const Element element = params.heads[0].element;
  const auto stores_groups = [&](const StoreRows& rows) {
    return are_groups(rows, element, params.head_dim);
  };
  return (element == Element::kBF16 || element == Element::kF16) && params.half % kGroupElements == 0 &&
         2 * params.half == params.head_dim && !params.norm_after_rope && is_aligned(params.cos) &&
         is_aligned(params.sin) && divides(kAnglesAtOnce, {params.cos_stride, params.sin_stride}) &&
         are_groups(params.heads[0], element) && are_groups(params.heads[1], element) &&
         (params.store.slots == nullptr ||
          std::all_of(std::begin(params.store.rows), std::end(params.store.rows), stores_groups));
}

void launch_norm_rope_groups(const NormRopeParams& params, void* stream) {
  if (params.heads[0].element == Element::kBF16)
    launch_elements<__nv_bfloat16>(params, stream);
  else
    launch_elements<__half>(params, stream);
}

}  // namespace attend::kernels::cuda
