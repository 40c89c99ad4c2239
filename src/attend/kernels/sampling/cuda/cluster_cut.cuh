// Finds the end of the largest elements of a row that together reach a target, with a cluster of CTAs.
// Elements are first divided into classes by their distance from the largest one; the sums of classes fit in
// registers. The elements of the class with the cut are gathered and searched digit by digit. Measures are
// added as integers, so the cut depends neither on the order of additions nor on the number of CTAs.
#pragma once

#include "attend/kernels/sampling/cuda/cluster_search.cuh"

namespace attend::kernels::cuda {

// Maps floats to unsigned integers with the same order; -0 and 0 are equal.
__device__ inline uint32_t float_to_order(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float order_to_float(uint32_t order) {
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// Converts a measure, at most 1, to an integer. Sums of rows of fewer than 2^20 elements fit in 64 bits;
// sample() rejects longer ones.
inline constexpr int kMeasureBits = 44;
__device__ inline uint64_t fixed_point(double measure) {
  return static_cast<uint64_t>(measure * static_cast<double>(uint64_t{1} << kMeasureBits) + 0.5);
}

// End of the largest elements that reach a target.
struct SearchCut {
  float lowest;  // elements above it are kept
  // Number of elements equal to it that are kept, in order, unless all of them are.
  double num_ties;
  bool keeps_all_ties;
};

// Classes of values in descending order. Class c contains values from lowest[c] up to the lower bound of the
// previous class; the first class ends at `end`.
inline constexpr int kClasses = 5;
struct CutClasses {
  float lowest[kClasses];
  float end = INFINITY;

  // Classes of all finite values by their distance from the largest one, in natural logarithms of
  // probabilities.
  __device__ static CutClasses for_row(float largest, float temperature) {
    constexpr float kDistances[kClasses - 1] = {2.0f, 4.0f, 7.0f, 11.0f};
    CutClasses classes;
#pragma unroll
    for (int c = 0; c < kClasses - 1; ++c)
      classes.lowest[c] = __fsub_rn(largest, __fmul_rn(kDistances[c], temperature));
    classes.lowest[kClasses - 1] = -INFINITY;
    return classes;
  }
  // Classes of equal width for values from `lowest` up to `end`, none of which exceeds `largest`.
  __device__ static CutClasses for_class(float lowest, float end, float largest) {
    CutClasses classes{.lowest = {}, .end = end};
    const float width = (fminf(end, largest) - lowest) / kClasses;
#pragma unroll
    for (int c = 0; c < kClasses; ++c)
      classes.lowest[c] = lowest + width * static_cast<float>(kClasses - 1 - c);
    return classes;
  }
  __device__ bool hold(float value) const { return value >= lowest[kClasses - 1] && value < end; }
};

// Sums of the measures of each class and all previous ones.
class ClassSums {
 public:
  __device__ explicit ClassSums(const CutClasses& classes) : classes_(classes) {}

  // Adds a value that is in one of the classes, or has measure 0.
  __device__ void add(float value, double measure) {
    const uint64_t amount = fixed_point(measure);
#pragma unroll
    for (int c = 0; c < kClasses - 1; ++c)
      if (value >= classes_.lowest[c]) sums_[c] += amount;
    sums_[kClasses - 1] += amount;
  }
  // Sums over all threads of the cluster, for the row. The cluster must synchronize between two calls.
  __device__ void gather(Cluster& cluster, uint64_t (&sums)[kClasses]) const {
    __shared__ uint64_t warp_results[kSearchWarps][kClasses];
    __shared__ uint64_t cta_sums[kClasses];
#pragma unroll
    for (int c = 0; c < kClasses; ++c) {
      uint64_t sum = sums_[c];
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      if (lane_idx() == 0) warp_results[warp_idx()][c] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kClasses) {
      uint64_t sum = 0;
      for (int warp = 0; warp < kSearchWarps; ++warp) sum += warp_results[warp][threadIdx.x];
      cta_sums[threadIdx.x] = sum;
    }
    cluster.synchronize();
#pragma unroll
    for (int c = 0; c < kClasses; ++c) sums[c] = cluster.sum(&cta_sums[c]);
  }
  __device__ const CutClasses& classes() const { return classes_; }

 private:
  CutClasses classes_;
  uint64_t sums_[kClasses] = {};
};

// Range of values that contains a cut: from `lowest` up to `end`. `above` is the sum of the measures above
// the range.
struct CutRange {
  float lowest, end;
  uint64_t above;
};

// Returns the first class at which the sum from above, including `above`, reaches the target; if there is
// none, the last non-empty class.
__device__ inline CutRange choose_class(const CutClasses& classes, const uint64_t (&sums)[kClasses],
                                        uint64_t above, double target) {
  CutRange chosen{classes.lowest[0], classes.end, above};
#pragma unroll
  for (int c = 1; c < kClasses; ++c) {
    if (static_cast<double>(above + sums[c - 1]) >= target || sums[c] == sums[c - 1]) continue;
    chosen = {classes.lowest[c], classes.lowest[c - 1], above + sums[c - 1]};
  }
  return chosen;
}

// Values of a CTA's part at which the cut may be.
struct Candidates {
  const float* values;
  int size;
  CutRange range;
  bool gathered;  // all `values` are in range and take part

  template <class Measure>
  __device__ bool holds(int i, const Measure& measure) const {
    return gathered || (values[i] >= range.lowest && values[i] < range.end && measure.includes(i, values[i]));
  }
};

// Scratch memory of a search: `room` floats of shared memory.
struct CutScratch {
  float* list;
  int room;
};

// Copies the values in range to the list if it has enough space for them.
template <class Measure>
__device__ Candidates gather_range(const float* values, int size, const CutRange& range,
                                   const Measure& measure, const CutScratch& scratch) {
  constexpr int kAtOnce = 4;
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int first = 0; first < size; first += kAtOnce * kSearchThreads) {
    float lane_values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * kSearchThreads + static_cast<int>(threadIdx.x);
      lane_values[j] = i < size ? values[i] : NAN;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * kSearchThreads + static_cast<int>(threadIdx.x);
      const bool inside =
          lane_values[j] >= range.lowest && lane_values[j] < range.end && measure.includes(i, lane_values[j]);
      const uint32_t all_inside = __ballot_sync(kAllLanes, inside);
      if (all_inside == 0) continue;
      int begin = 0;
      if (lane_idx() == 0) begin = atomicAdd(&count, __popc(all_inside));
      begin = __shfl_sync(kAllLanes, begin, 0) + __popc(all_inside & ((1u << lane_idx()) - 1));
      if (inside && begin < scratch.room) scratch.list[begin] = lane_values[j];
    }
  }
  __syncthreads();
  if (count <= scratch.room) return {scratch.list, count, range, /*gathered=*/true};
  return {values, size, range, /*gathered=*/false};
}

inline constexpr int kDigitBits = 8, kBuckets = 1 << kDigitBits;

// Adds sums[bucket] += measure for participating lanes; called by whole warps. Uses one atomic add per
// distinct bucket of the warp: neighboring elements have few.
__device__ inline void add_to_buckets(uint64_t* sums, bool is_included, uint32_t bucket, uint64_t measure) {
  constexpr int kHalfBits = kMeasureBits / 2;
  uint32_t left = __ballot_sync(kAllLanes, is_included);
  while (left != 0) {
    const int leader = __ffs(static_cast<int>(left)) - 1;
    const uint32_t leaders = __shfl_sync(kAllLanes, bucket, leader);
    const bool mine = is_included && bucket == leaders;
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

// Returns the highest bucket at which the sum from above, including `above`, reaches the target, or else the
// lowest non-empty one. Called by whole warps.
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

// Sums measures of a CTA's candidates by one digit: sums[b] is for the values with an order that starts with
// `prefix` and then b.
template <class Measure>
__device__ void sum_by_buckets(const Candidates& candidates, uint32_t prefix, int shift,
                               const Measure& measure, uint64_t* sums) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kBuckets) sums[thread] = 0;
  __syncthreads();
  for (int first = 0; first < candidates.size; first += kSearchThreads) {
    const int i = first + thread;
    const float value = i < candidates.size ? candidates.values[i] : 0.0f;
    const uint32_t order = float_to_order(value);
    const bool inside = i < candidates.size && uint64_t{order} >> (shift + kDigitBits) == prefix &&
                        candidates.holds(i, measure);
    const uint64_t amount = inside ? fixed_point(measure.weight(value)) : 0;
    add_to_buckets(sums, amount != 0, order >> shift & (kBuckets - 1), amount);
  }
}

// Returns the cut that keeps the fewest largest of the row's `values` with measures that add up to at least
// `target`. Measure::includes(i, value) returns true if element i counts, and weight(value) returns the
// measure of a value; NaN does not count. At least one measure is above 0. `thread_class_sums`: sums of the
// row's classes.
//
// Within a range this is a radix search, like cpu/sampling_cut.h.
template <class Measure>
__device__ SearchCut find_cut(Cluster& cluster, const Part& part, double target, const float* values,
                              float largest, const ClassSums& thread_class_sums, const Measure& measure,
                              const CutScratch& scratch) {
  // Double-buffered, since other CTAs may still read the previous sums.
  __shared__ uint64_t part_bucket_sums[2][kBuckets];
  __shared__ uint64_t sums[kBuckets];
  const double fixed_target = target * static_cast<double>(uint64_t{1} << kMeasureBits);
  const int thread = static_cast<int>(threadIdx.x);
  uint64_t class_sums[kClasses];
  thread_class_sums.gather(cluster, class_sums);
  CutRange range = choose_class(thread_class_sums.classes(), class_sums, /*above=*/0, fixed_target);
  Candidates candidates = gather_range(values, part.size, range, measure, scratch);
  // Ranges with too many values are divided. Ranges with few or no shared values are left to the radix
  // search.
  constexpr int kMaxDivisions = 2;
  for (int i = 0; i < kMaxDivisions && !isinf(range.lowest); ++i) {
    if (cluster.largest(candidates.gathered ? 0 : 1) == 0) break;
    ClassSums range_sums(CutClasses::for_class(range.lowest, range.end, largest));
#pragma unroll 2
    for (int j = thread; j < part.size; j += kSearchThreads) {
      const float value = values[j];
      if (range_sums.classes().hold(value) && measure.includes(j, value))
        range_sums.add(value, measure.weight(value));
    }
    range_sums.gather(cluster, class_sums);
    range = choose_class(range_sums.classes(), class_sums, range.above, fixed_target);
    candidates = gather_range(values, part.size, range, measure, scratch);
  }
  uint64_t above = range.above;
  uint32_t prefix = 0;
  uint64_t last_sum = 0;
  int buffer = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits, buffer ^= 1) {
    sum_by_buckets(candidates, prefix, shift, measure, part_bucket_sums[buffer]);
    cluster.synchronize();
    if (thread < kBuckets) sums[thread] = cluster.sum(&part_bucket_sums[buffer][thread]);
    __syncthreads();
    const ChosenBucket chosen = choose_bucket(sums, above, fixed_target);
    above = chosen.above;
    prefix = prefix << kDigitBits | chosen.bucket;
    last_sum = sums[chosen.bucket];
  }
  // After the last digit, a bucket contains equal values only.
  const float lowest = order_to_float(prefix);
  const auto fixed_measure = static_cast<double>(fixed_point(measure.weight(lowest)));
  const double num_ties = fmax(1.0, ceil((fixed_target - static_cast<double>(above)) / fixed_measure));
  return {lowest, num_ties, num_ties * fixed_measure >= static_cast<double>(last_sum)};
}

}  // namespace attend::kernels::cuda
