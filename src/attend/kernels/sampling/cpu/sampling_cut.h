// SamplingCut: which tokens top_k and top_p keep, found without sorting.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace attend::kernels::cpu {

// Keeps the logits above `lowest`, and the first `num_ties` of those that equal it.
struct SamplingCut {
  float lowest = -std::numeric_limits<float>::infinity();
  int64_t num_ties = std::numeric_limits<int64_t>::max();
};

// Unsigned integers in the order of the floats that they stand for; -0 and 0 are the same.
inline uint32_t float_to_order(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
inline float order_to_float(uint32_t order) {
  return std::bit_cast<float>(order >> 31 ? order & 0x7fffffffu : ~order);
}

// The cut that keeps the largest logits, as few as together reach `target` by their measure.
// for_each_logit(fn) calls fn(logit, measure) for every logit, NaN excepted; a measure is at least 0, and
// equal logits have equal ones or 0.
//
// A radix search: the measures are added up by the upper bits of their logits, in the bucket where the sum
// from above reaches the target by the next bits, and so on.
template <class ForEachLogit>
SamplingCut find_cut(double target, const ForEachLogit& for_each_logit) {
  constexpr int kDigitBits = 8, kBuckets = 1 << kDigitBits;
  double above = 0;  // the measure of all logits above the chosen bucket: less than the target
  uint32_t prefix = 0;
  double unit_measure = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    double sums[kBuckets] = {};
    double measures[kBuckets] = {};  // of the last logit of each bucket
    for_each_logit([&](float logit, float measure) {
      const uint32_t order = float_to_order(logit);
      if (measure == 0.0f || uint64_t{order} >> (shift + kDigitBits) != prefix) return;
      const uint32_t bucket = order >> shift & (kBuckets - 1);
      sums[bucket] += static_cast<double>(measure);
      measures[bucket] = static_cast<double>(measure);
    });
    // Rounding may leave the sum of all short of the target: then it is the lowest bucket with anything in
    // it.
    uint32_t lowest = 0, bucket = kBuckets - 1;
    while (lowest < bucket && sums[lowest] == 0) ++lowest;
    while (bucket > lowest && above + sums[bucket] < target) above += sums[bucket--];
    prefix = prefix << kDigitBits | bucket;
    unit_measure = measures[bucket];  // after the last digit a bucket holds equal logits only
  }
  const auto num_ties = static_cast<int64_t>(std::ceil((target - above) / unit_measure));
  return {.lowest = order_to_float(prefix), .num_ties = std::max<int64_t>(1, num_ties)};
}

}  // namespace attend::kernels::cpu
