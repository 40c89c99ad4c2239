// Selection of one token's experts by a warp: the best ones by their logits, and their weights.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/moe/spread_rank.h"

namespace attend::kernels::cuda {

inline constexpr int kRouteLanes = 32;

// Key that orders by rank. NaN ranks last. Never 0.
__device__ inline uint32_t order_key(float rank) {
  const uint32_t bits = __float_as_uint(rank + 0.0f);  // converts -0 to 0
  return isnan(rank) ? 1 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
// Key that orders by order_key(), then by the lower expert (or group).
__device__ inline uint64_t make_rank_key(uint32_t key, int expert) {
  return static_cast<uint64_t>(key) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}
__device__ inline uint64_t make_rank_key(float rank, int expert) {
  return make_rank_key(order_key(rank), expert);
}
__device__ inline int key_expert(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline float key_rank(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  if (ordered <= 1) return __int_as_float(0x7fffffff);
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

__device__ inline uint64_t warp_max(uint64_t key) {
  const auto rank = static_cast<uint32_t>(key >> 32);
  const uint32_t best = __reduce_max_sync(0xffffffffu, rank);
  const uint32_t last = __reduce_max_sync(0xffffffffu, rank == best ? static_cast<uint32_t>(key) : 0);
  return static_cast<uint64_t>(best) << 32 | last;
}
__device__ inline float warp_sum(float value) {
  for (int step = kRouteLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Returns the largest rank key below `bound` of the experts begin <= expert < end, or 0 for none.
template <int kPerLane>
__device__ uint64_t warp_group_max(const uint32_t (&keys)[kPerLane], int lane, int begin, int end,
                                   uint64_t bound) {
  uint64_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kRouteLanes + lane;
    const uint64_t key = make_rank_key(keys[i], expert);
    if (expert >= begin && expert < end && key < bound && key > best) best = key;
  }
  return warp_max(best);
}

// Sets the keys of experts outside the best groups to 0. Lane g ranks group g.
template <int kPerLane>
__device__ void mask_other_groups(const RouteParams& params, int lane, uint32_t (&keys)[kPerLane]) {
  const int group_size = params.num_experts / params.num_groups;
  uint64_t key = 0;
  for (int group = 0; group < params.num_groups; ++group) {
    const int begin = group * group_size;
    const uint64_t best = warp_group_max(keys, lane, begin, begin + group_size, ~uint64_t{0});
    float rank = key_rank(best);
    if (params.sigmoid) rank += key_rank(warp_group_max(keys, lane, begin, begin + group_size, best));
    if (lane == group) key = make_rank_key(rank, group);
  }
  uint32_t chosen = 0;
  for (int i = 0; i < params.top_groups; ++i) {
    const uint64_t best = warp_max(key);
    if (key == best) key = 0;
    chosen |= 1u << key_expert(best);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kRouteLanes + lane;
    if (expert < params.num_experts && (chosen >> (expert / group_size) & 1u) == 0) keys[i] = 0;
  }
}

// Removes the largest of the lanes' keys, with the lowest expert among equal ones, and returns its expert.
// Sorting the keys of a lane first needs fewer instructions per round, but more code, and code that runs once
// costs the time to load it.
template <int kPerLane>
__device__ __forceinline__ int pop_largest(uint32_t (&keys)[kPerLane], int lane) {
  uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) own = max(own, keys[i]);
  const uint32_t largest = __reduce_max_sync(0xffffffffu, own);
  int first = kPerLane;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i)
    if (keys[i] == largest) first = i;
  const auto expert =
      static_cast<int>(__reduce_min_sync(0xffffffffu, static_cast<uint32_t>(first * kRouteLanes + lane)));
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (i * kRouteLanes + lane == expert) keys[i] = 0;
  return expert;
}

// Routes one token; a lane has every 32nd of its logits, kPerLane at most. Writes the token's row of
// params.experts and params.weights.
template <int kPerLane>
__device__ void route_token(const RouteParams& params, const float* logits, int64_t token, int lane) {
  float own[kPerLane];
  uint32_t keys[kPerLane];
  // A softmax with a correction ranks by scores. Otherwise only their order matters, which is that of logits.
  const bool ranks_by_softmax = !params.sigmoid && params.correction != nullptr;
  float largest_logit = 0.0f, score_sum = 1.0f;
  if (ranks_by_softmax) {
    uint32_t key = 0;
    for (int expert = lane; expert < params.num_experts; expert += kRouteLanes)
      key = max(key, order_key(logits[expert]));
    largest_logit = key_rank(uint64_t{__reduce_max_sync(0xffffffffu, key)} << 32);
    float sum = 0.0f;
    for (int expert = lane; expert < params.num_experts; expert += kRouteLanes)
      sum += expf(logits[expert] - largest_logit);
    score_sum = warp_sum(sum);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kRouteLanes + lane;
    const bool given = expert < params.num_experts;
    own[i] = given ? logits[expert] : 0.0f;
    float rank = own[i];
    if (params.sigmoid && given)
      rank = sigmoid(rank) + (params.correction == nullptr ? 0.0f : params.correction[expert]);
    if (ranks_by_softmax && given) rank = expf(rank - largest_logit) / score_sum + params.correction[expert];
    if (params.spread != 0)
      rank = spread_rank(params.spread, static_cast<uint32_t>(token), static_cast<uint32_t>(expert));
    keys[i] = given ? order_key(rank) : 0;
  }
  if (params.top_groups < params.num_groups) mask_other_groups(params, lane, keys);
  int chosen = 0;  // expert with the lane's rank among the token's experts
#pragma unroll 1
  for (int rank = 0; rank < params.top_k; ++rank) {
    const int expert = pop_largest(keys, lane);
    if (lane == rank) chosen = expert;
  }
  const bool has_choice = lane < params.top_k;
  const float logit = has_choice ? logits[chosen] : 0.0f;
  const float best = __shfl_sync(0xffffffffu, logit, 0);
  const float largest = ranks_by_softmax ? largest_logit : best;
  float weight = 0.0f;
  if (has_choice) weight = params.sigmoid ? sigmoid(logit) : expf(logit - largest);
  float sum = weight;
  if (params.over_all_experts && !params.sigmoid) {
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (i * kRouteLanes + lane < params.num_experts) sum += expf(own[i] - largest);
  }
  sum = warp_sum(sum);
  if (params.sigmoid) sum = params.over_all_experts ? 1.0f : sum + params.sum_epsilon;
  if (params.over_near_experts) {
    const float second = __shfl_sync(0xffffffffu, logit, 1);
    const int first_expert = __shfl_sync(0xffffffffu, chosen, 0);
    float sums[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = i * kRouteLanes + lane;
      if (expert >= params.num_experts) continue;
      const auto term = [&](float y) {
        return (y - own[i]) / fmaxf(fabsf(own[i]), y) > params.near ? 0.0f : expf(own[i] - y);
      };
      sums[0] += term(best);
      if (expert != first_expert) sums[1] += term(second);
    }
    const float first_sum = warp_sum(sums[0]), second_sum = warp_sum(sums[1]);
    weight = 1.0f;
    sum = lane == 0 ? first_sum : second_sum;
  }
  if (!has_choice) return;
  params.experts[token * params.top_k + lane] = chosen;
  const float scale = params.expert_scales == nullptr ? 1.0f : params.expert_scales[chosen];
  params.weights[token * params.top_k + lane] = weight / sum * params.scale * scale;
}

}  // namespace attend::kernels::cuda
