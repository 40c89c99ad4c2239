// Searches that a CTA of kSearchThreads does together over measures of the elements of a row. Every thread
// calls them and gets the result. Sums are made in an order that depends on the length alone.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

inline constexpr int kSearchThreads = 1024;
inline constexpr int kSearchWarps = kSearchThreads / 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ inline int lane_idx() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp_idx() { return static_cast<int>(threadIdx.x / 32); }

__device__ inline double warp_total(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// Sum of measure(i) over [0, size).
template <class Measure>
__device__ double cta_total(int size, const Measure& measure) {
  __shared__ double totals[kSearchWarps];
  double mine = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kSearchThreads) mine += measure(i);
  mine = warp_total(mine);
  __syncthreads();
  if (lane_idx() == 0) totals[warp_idx()] = mine;
  __syncthreads();
  double total = 0.0;
  for (int warp = 0; warp < kSearchWarps; ++warp) total += totals[warp];
  return total;
}

// The first i in [0, size) at which the sum of measures (none below 0) of [0, i] exceeds `target`. When
// rounding keeps it from being exceeded, the last i with a measure; without any, size.
//
// Each warp sums a part of the range; the part that holds the answer becomes the range.
template <class Measure>
__device__ int first_exceeding(int size, double target, const Measure& measure) {
  __shared__ double totals[kSearchWarps];
  int begin = 0, end = size;
  double before = 0.0;
  while (end - begin > 32) {
    const int part = (end - begin + kSearchWarps - 1) / kSearchWarps;
    const int part_begin = min(end, begin + warp_idx() * part), part_end = min(end, part_begin + part);
    double mine = 0.0;
    for (int i = part_begin + lane_idx(); i < part_end; i += 32) mine += measure(i);
    mine = warp_total(mine);
    __syncthreads();
    if (lane_idx() == 0) totals[warp_idx()] = mine;
    __syncthreads();
    int chosen = -1;
    double sum = before, before_chosen = before;
    for (int warp = 0; warp < kSearchWarps; ++warp) {
      if (totals[warp] == 0.0) continue;
      chosen = warp;
      before_chosen = sum;
      sum += totals[warp];
      if (sum > target) break;
    }
    if (chosen < 0) return size;
    before = before_chosen;
    begin += chosen * part;
    end = min(end, begin + part);
  }
  // Every warp does the rest, with the same result.
  const int i = begin + lane_idx();
  const double mine = i < end ? measure(i) : 0.0;
  double sum = mine;
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane_idx() >= step) sum += other;
  }
  const uint32_t with_measure = __ballot_sync(kAllLanes, mine > 0.0);
  const uint32_t exceeding = __ballot_sync(kAllLanes, mine > 0.0 && before + sum > target);
  if (exceeding != 0) return begin + __ffs(static_cast<int>(exceeding)) - 1;
  return with_measure == 0 ? size : begin + 31 - __clz(static_cast<int>(with_measure));
}

// Unsigned integers in the order of the floats that they stand for; -0 and 0 are the same.
__device__ inline uint32_t float_order(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float float_of_order(uint32_t order) {
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// Measures as integers, so that their sums do not depend on the order of adding.
inline constexpr int kMeasureBits = 44;
__device__ inline uint64_t fixed_point(double measure) {
  return static_cast<uint64_t>(measure * static_cast<double>(uint64_t{1} << kMeasureBits) + 0.5);
}

// Where the largest elements that reach a target end.
struct SearchCut {
  float lowest;     // elements above it are kept
  double num_ties;  // and so many that equal it, as they come
};

inline constexpr int kDigitBits = 8, kBuckets = 1 << kDigitBits;

// sums[bucket] += measure for the lanes that take part; called by whole warps. One atomic add for each bucket
// that the warp meets: neighbouring elements meet few.
__device__ inline void add_to_buckets(uint64_t* sums, bool takes_part, uint32_t bucket, uint64_t measure) {
  constexpr int kHalfBits = kMeasureBits / 2;
  uint32_t left = __ballot_sync(kAllLanes, takes_part);
  while (left != 0) {
    const int leader = __ffs(static_cast<int>(left)) - 1;
    const uint32_t leaders = __shfl_sync(kAllLanes, bucket, leader);
    const bool mine = takes_part && bucket == leaders;
    const uint32_t low = static_cast<uint32_t>(measure & ((uint64_t{1} << kHalfBits) - 1));
    const uint32_t high = static_cast<uint32_t>(measure >> kHalfBits);
    const uint32_t low_sum = __reduce_add_sync(kAllLanes, mine ? low : 0u);
    const uint32_t high_sum = __reduce_add_sync(kAllLanes, mine ? high : 0u);
    if (lane_idx() == leader)
      atomicAdd(reinterpret_cast<unsigned long long*>(&sums[bucket]),
                (static_cast<unsigned long long>(high_sum) << kHalfBits) + low_sum);
    left &= ~__ballot_sync(kAllLanes, mine);
  }
}

struct ChosenBucket {
  uint32_t bucket;
  uint64_t above;  // sum of the buckets above it
};

// The highest bucket at which the sum from above, `above` included, reaches the target; or the lowest with
// anything in it. By whole warps.
__device__ inline ChosenBucket choose_bucket(const uint64_t* sums, uint64_t above, double target) {
  constexpr int kPerLane = kBuckets / 32;
  const int highest = kBuckets - 1 - lane_idx() * kPerLane;  // lane 0 holds the highest buckets
  uint64_t mine = 0;
  for (int j = 0; j < kPerLane; ++j) mine += sums[highest - j];
  uint64_t up_to = mine;
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, up_to, step);
    if (lane_idx() >= step) up_to += other;
  }
  const uint32_t reaching = __ballot_sync(kAllLanes, static_cast<double>(above + up_to) >= target);
  const uint32_t filled = __ballot_sync(kAllLanes, mine != 0);
  const int lane =
      reaching != 0 ? __ffs(static_cast<int>(reaching)) - 1 : 31 - __clz(static_cast<int>(filled));
  uint64_t sum = above + __shfl_sync(kAllLanes, up_to - mine, lane);
  ChosenBucket chosen{0, above};
  for (int j = 0; j < kPerLane; ++j) {
    const uint32_t bucket = static_cast<uint32_t>(kBuckets - 1 - lane * kPerLane - j);
    if (sums[bucket] == 0) continue;
    chosen = {bucket, sum};
    sum += sums[bucket];
    if (static_cast<double>(sum) >= target) break;
  }
  return chosen;
}

// The cut that keeps the largest of value(i), as few as together reach `target` by their measure. Equal
// values have equal measures, or 0; of NaN it is 0. At least one measure is above 0.
//
// A radix search, as cpu/sampling_cut.h.
template <class Value, class Measure>
__device__ SearchCut find_cut(int size, double target, const Value& value, const Measure& measure) {
  __shared__ uint64_t sums[kBuckets];
  const double fixed_target = target * static_cast<double>(uint64_t{1} << kMeasureBits);
  uint64_t above = 0, of_one = 1;
  uint32_t prefix = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    __syncthreads();
    for (int bucket = static_cast<int>(threadIdx.x); bucket < kBuckets; bucket += kSearchThreads)
      sums[bucket] = 0;
    __syncthreads();
    for (int first = 0; first < size; first += kSearchThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      const uint32_t order = i < size ? float_order(value(i)) : 0u;
      const bool inside = i < size && uint64_t{order} >> (shift + kDigitBits) == prefix;
      const uint64_t amount = inside ? fixed_point(measure(i)) : 0;
      add_to_buckets(sums, amount != 0, order >> shift & (kBuckets - 1), amount);
    }
    __syncthreads();
    const ChosenBucket chosen = choose_bucket(sums, above, fixed_target);
    above = chosen.above;
    prefix = prefix << kDigitBits | chosen.bucket;
  }
  // After the last digit a bucket holds equal values only; one of them tells what one measures.
  __shared__ int holder;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kSearchThreads)
    if (float_order(value(i)) == prefix && fixed_point(measure(i)) != 0) holder = i;
  __syncthreads();
  of_one = fixed_point(measure(holder));
  const double num_ties = ceil((fixed_target - static_cast<double>(above)) / static_cast<double>(of_one));
  return {float_of_order(prefix), fmax(1.0, num_ties)};
}

}  // namespace attend::kernels::cuda
