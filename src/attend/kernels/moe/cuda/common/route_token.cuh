// Selection of one token's experts by a warp: the best ones by their logits, and their weights.
#pragma once

#include "attend/kernels/moe/cuda/common/moe_kernels.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/moe/spread_rank.h"

namespace attend::kernels::cuda {

inline constexpr int kRouteLanes = 32;

// Sort key: orders by rank, then by the lower expert (or group). NaN ranks last. Never 0.
__device__ inline uint64_t make_rank_key(float rank, int expert) {
  const uint32_t bits = __float_as_uint(rank + 0.0f);  // converts -0 to 0
  const uint32_t ordered = isnan(rank) ? 0 : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}
__device__ inline int key_expert(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline float key_rank(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  if (ordered == 0) return __int_as_float(0x7fffffff);
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

// Returns the largest key below `bound` of the experts begin <= expert < end, or 0 for none.
template <int kPerLane>
__device__ uint64_t warp_group_max(const uint64_t (&keys)[kPerLane], int lane, int begin, int end,
                                   uint64_t bound) {
  uint64_t best = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kRouteLanes + lane;
    if (expert >= begin && expert < end && keys[i] < bound && keys[i] > best) best = keys[i];
  }
  return warp_max(best);
}

// Sets the keys of experts outside the best groups to 0. Lane g ranks group g.
template <int kPerLane>
__device__ void mask_other_groups(const RouteParams& params, int lane, uint64_t (&keys)[kPerLane]) {
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

// Batcher's odd-even merge sort, in descending order. One pass per instance: as nested loops, 16 keys were
// not unrolled and were sorted in local memory.
template <int kPerLane, int kMerged = 1, int kApart = 1>
__device__ __forceinline__ void sort_keys(uint64_t (&keys)[kPerLane]) {
  static_assert((kPerLane & (kPerLane - 1)) == 0, "sorts a power of two of keys");
#pragma unroll
  for (int i = 0; i + kApart < kPerLane; ++i) {
    constexpr int kFrom = kApart % kMerged;
    const int j = i + kApart;
    if (i < kFrom || (i - kFrom) / kApart % 2 != 0 || i / (2 * kMerged) != j / (2 * kMerged)) continue;
    const uint64_t low = keys[i] < keys[j] ? keys[i] : keys[j];
    keys[i] = keys[i] < keys[j] ? keys[j] : keys[i];
    keys[j] = low;
  }
  if constexpr (kApart > 1)
    sort_keys<kPerLane, kMerged, kApart / 2>(keys);
  else if constexpr (2 * kMerged < kPerLane)
    sort_keys<kPerLane, 2 * kMerged, 2 * kMerged>(keys);
}

// Removes the largest of the lanes' sorted first keys and returns its expert. Lanes rarely have equal ranks,
// so one reduction is usually enough.
template <int kPerLane>
__device__ __forceinline__ int pop_largest(uint64_t (&keys)[kPerLane]) {
  const auto rank = static_cast<uint32_t>(keys[0] >> 32), rest = static_cast<uint32_t>(keys[0]);
  bool largest = rank == __reduce_max_sync(0xffffffffu, rank);
  uint32_t lanes = __ballot_sync(0xffffffffu, largest);
  if (__popc(lanes) > 1) {
    const uint32_t last = __reduce_max_sync(0xffffffffu, largest ? rest : 0);
    largest = largest && rest == last;
    lanes = __ballot_sync(0xffffffffu, largest);
  }
  const int expert = __shfl_sync(0xffffffffu, key_expert(keys[0]), __ffs(static_cast<int>(lanes)) - 1);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (largest) keys[i] = i + 1 < kPerLane ? keys[i + 1] : 0;
  return expert;
}

// Routes one token; a lane has every 32nd of its logits, kPerLane at most. Writes the token's row of
// params.experts and params.weights.
template <int kPerLane>
__device__ void route_token(const RouteParams& params, const float* logits, int64_t token, int lane) {
  float own[kPerLane];
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kRouteLanes + lane;
    const bool given = expert < params.num_experts;
    own[i] = given ? logits[expert] : 0.0f;
    float rank = own[i];
    if (params.sigmoid && given)
      rank = sigmoid(rank) + (params.correction == nullptr ? 0.0f : params.correction[expert]);
    if (params.spread != 0)
      rank = spread_rank(params.spread, static_cast<uint32_t>(token), static_cast<uint32_t>(expert));
    keys[i] = given ? make_rank_key(rank, expert) : 0;
  }
  if (params.top_groups < params.num_groups) mask_other_groups(params, lane, keys);
  sort_keys(keys);
  int chosen = 0;  // expert with the lane's rank among the token's experts
  for (int rank = 0; rank < params.top_k; ++rank) {
    const int expert = pop_largest(keys);
    if (lane == rank) chosen = expert;
  }
  const bool has_choice = lane < params.top_k;
  const float logit = has_choice ? logits[chosen] : 0.0f;
  const float largest = __shfl_sync(0xffffffffu, logit, 0);
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
  if (!has_choice) return;
  params.experts[token * params.top_k + lane] = chosen;
  params.weights[token * params.top_k + lane] = weight / sum * params.scale;
}

}  // namespace attend::kernels::cuda
