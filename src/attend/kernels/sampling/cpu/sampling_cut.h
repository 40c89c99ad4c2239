// SamplingCut: the tokens that top_k and top_p keep, found without sorting.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace attend::kernels::cpu {

// Keeps the logits above `lowest`, and the first `num_ties` of those equal to it.
struct SamplingCut {
  float lowest = -std::numeric_limits<float>::infinity();
  int64_t num_ties = std::numeric_limits<int64_t>::max();
};

// Maps floats to unsigned integers with the same order; -0 and 0 are equal.
inline uint32_t float_to_order(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
inline float order_to_float(uint32_t order) {
  return std::bit_cast<float>(order >> 31 ? order & 0x7fffffffu : ~order);
}

// Returns the cut that keeps the fewest largest logits with measures that add up to at least `target`.
// for_each_logit(fn) calls fn(logit, measure) for every logit except NaN. A measure is at least 0, and equal
// logits have equal measures, or 0.
//
// This is a radix search: measures are summed by the upper bits of their logits, then by the next bits within
// the bucket in which the sum from above reaches the target, and so on.
template <class ForEachLogit>
SamplingCut find_cut(double target, const ForEachLogit& for_each_logit) {
  constexpr int kDigitBits = 8, kBuckets = 1 << kDigitBits;
  double above = 0;  // measure of all logits above the selected bucket; less than the target
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
    // If rounding leaves the total below the target, the lowest non-empty bucket is selected.
    uint32_t lowest = 0, bucket = kBuckets - 1;
    while (lowest < bucket && sums[lowest] == 0) ++lowest;
    while (bucket > lowest && above + sums[bucket] < target) above += sums[bucket--];
    prefix = prefix << kDigitBits | bucket;
    unit_measure = measures[bucket];  // after the last digit, a bucket contains equal logits only
  }
  const auto num_ties = static_cast<int64_t>(std::ceil((target - above) / unit_measure));
  return {.lowest = order_to_float(prefix), .num_ties = std::max<int64_t>(1, num_ties)};
}

}  // namespace attend::kernels::cpu
