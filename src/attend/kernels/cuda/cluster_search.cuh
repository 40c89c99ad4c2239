// Searches that a cluster of CTAs of kSearchThreads threads does together over measures of the elements of a
// row. A row is kSlices slices, one after another, of which each CTA has as many; elements are counted within
// the part that these are. Every thread of the cluster calls them and gets the result. Sums are made by
// slices, in an order that depends on their length alone: so results do not depend on the number of CTAs.
#pragma once

#include <climits>
#include <cstdint>

#include "attend/kernels/cuda/ptx/cluster.cuh"
#include "attend/kernels/cuda/ptx/copy.cuh"

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

inline constexpr int kSlices = 8;  // CTAs of a cluster at most: as many as run on every GPU that has clusters

// What the CTAs of a cluster tell each other.
class Cluster {
 public:
  // `words`: 2 kSlices of shared memory, whose halves take turns: who is told the second time has read the
  // first.
  __device__ explicit Cluster(uint64_t* words)
      : words_(words), rank_(ptx::cluster_rank()), size_(ptx::cluster_size()) {}

  __device__ int rank() const { return rank_; }
  __device__ int size() const { return size_; }
  __device__ int num_own_slices() const { return kSlices / size_; }
  __device__ int first_own_slice() const { return rank_ * num_own_slices(); }

  // Also between the threads of a CTA.
  __device__ void synchronize() const {
    ptx::arrive_at_cluster();
    ptx::wait_for_cluster();
  }

  // all[first_own_slice() + j] = own(j), which all threads of the CTA call in turn for each of their slices.
  template <class Own>
  __device__ void gather(const Own& own, uint64_t (&all)[kSlices]) {
    uint64_t* const words = words_ + turn_ * kSlices;
    turn_ ^= 1;
    for (int j = 0; j < num_own_slices(); ++j) {
      const uint64_t mine = own(j);
      if (threadIdx.x == 0) words[first_own_slice() + j] = mine;
    }
    synchronize();
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) all[slice] = load(words + slice, slice * size_ / kSlices);
  }
  // Of what each CTA gives.
  __device__ uint64_t largest(uint64_t mine) {
    uint64_t all[kSlices];
    gather([=](int) { return mine; }, all);
    uint64_t found = 0;
    for (const uint64_t other : all) found = other > found ? other : found;
    return found;
  }

  // The sum of a word of shared memory over the CTAs, after a synchronize().
  __device__ uint64_t sum(const uint64_t* word) const {
    uint64_t total = 0;
    for (int rank = 0; rank < size_; ++rank) total += load(word, rank);
    return total;
  }

 private:
  __device__ static uint64_t load(const uint64_t* word, int rank) {
    return ptx::load_from_cluster(ptx::address_in_cta(ptx::shared_address(word), rank));
  }

  uint64_t* words_;
  int rank_, size_;
  int turn_ = 0;
};

// The elements of a CTA: its slices, of `slice_size` elements but for those with which the row ends.
struct Part {
  int size;
  int slice_size;

  __device__ int slice_begin(int j) const { return min(size, j * slice_size); }
};

__device__ inline uint64_t bits_of(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
__device__ inline double double_of(uint64_t bits) { return __longlong_as_double(static_cast<int64_t>(bits)); }

// Sum of measure(i) over [begin, end) of a CTA's part.
template <class Measure>
__device__ double cta_total(int begin, int end, const Measure& measure) {
  __shared__ double totals[kSearchWarps];
  double mine = 0.0;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kSearchThreads) mine += measure(i);
  mine = warp_total(mine);
  __syncthreads();
  if (lane_idx() == 0) totals[warp_idx()] = mine;
  __syncthreads();
  double total = 0.0;
  for (int warp = 0; warp < kSearchWarps; ++warp) total += totals[warp];
  return total;
}

// Those of all slices of the row.
template <class Measure>
__device__ void slice_totals(Cluster& cluster, const Part& part, const Measure& measure,
                             double (&totals)[kSlices]) {
  uint64_t all[kSlices];
  cluster.gather(
      [&](int j) { return bits_of(cta_total(part.slice_begin(j), part.slice_begin(j + 1), measure)); }, all);
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) totals[slice] = double_of(all[slice]);
}

template <class Measure>
__device__ double cluster_total(Cluster& cluster, const Part& part, const Measure& measure) {
  double totals[kSlices];
  slice_totals(cluster, part, measure, totals);
  double total = 0.0;
  for (const double one : totals) total += one;
  return total;
}

// The first i in [begin, end) of a CTA's part at which `before` and the sum of measures (none below 0) of
// [begin, i] exceed `target`. When rounding keeps it from being exceeded, the last i with a measure; without
// any, `end`.
//
// Each warp sums a part of the range; the part that holds the answer becomes the range.
template <class Measure>
__device__ int first_exceeding_in_cta(int begin, int end, double before, double target,
                                      const Measure& measure) {
  const int none = end;
  __shared__ double totals[kSearchWarps];
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
    if (chosen < 0) return none;
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
  return with_measure == 0 ? none : begin + 31 - __clz(static_cast<int>(with_measure));
}

// As first_exceeding_in_cta(), over all slices: an element of the row. At least one measure is above 0.
template <class Measure>
__device__ int first_exceeding(Cluster& cluster, const Part& part, double target, const Measure& measure) {
  double totals[kSlices];
  slice_totals(cluster, part, measure, totals);
  int chosen = 0;
  double sum = 0.0, before = 0.0;
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    if (totals[slice] == 0.0 || (sum > 0.0 && sum > target)) continue;
    chosen = slice;
    before = sum;
    sum += totals[slice];
  }
  const int j = chosen - cluster.first_own_slice();
  int found = 0;
  if (0 <= j && j < cluster.num_own_slices())
    found = cluster.first_own_slice() * part.slice_size +
            first_exceeding_in_cta(part.slice_begin(j), part.slice_begin(j + 1), before, target, measure);
  return static_cast<int>(cluster.largest(static_cast<uint64_t>(found)));
}

// Unsigned integers in the order of the floats that they stand for; -0 and 0 are the same.
__device__ inline uint32_t float_order(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float float_of_order(uint32_t order) {
  return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// Measures, 1 at most, as integers, so that their sums do not depend on the order of adding. Those of a row
// of fewer than 2^20 elements fit in 64 bits; sample() refuses longer ones.
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

// The sums of one digit's buckets over a CTA's part: sums[b] of the elements whose order begins with `prefix`
// and then b. Elements that count 1 are counted as whole numbers, which shared memory adds up by itself.
template <class Value, class Measure>
__device__ void sum_by_buckets(int size, uint32_t prefix, int shift, const Value& value,
                               const Measure& measure, uint64_t* sums) {
  __shared__ uint32_t counts[kBuckets];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kBuckets) sums[thread] = counts[thread] = 0;
  __syncthreads();
  for (int first = 0; first < size; first += kSearchThreads) {
    const int i = first + thread;
    const uint32_t order = i < size ? float_order(value(i)) : 0u;
    const bool inside = i < size && uint64_t{order} >> (shift + kDigitBits) == prefix;
    const uint32_t bucket = order >> shift & (kBuckets - 1);
    const double amount = inside ? measure(i) : 0.0;
    if constexpr (Measure::kCounts) {
      if (amount != 0.0) atomicAdd(&counts[bucket], 1u);
    } else {
      add_to_buckets(sums, fixed_point(amount) != 0, bucket, fixed_point(amount));
    }
  }
  if constexpr (Measure::kCounts) {
    __syncthreads();
    if (thread < kBuckets) sums[thread] = uint64_t{counts[thread]} << kMeasureBits;
  }
}

// The cut that keeps the largest of value(i) of the row, as few as together reach `target` by their
// measure. Equal values have equal measures, or 0; of NaN it is 0. At least one measure is above 0.
//
// A radix search, as cpu/sampling_cut.h.
template <class Value, class Measure>
__device__ SearchCut find_cut(Cluster& cluster, const Part& part, double target, const Value& value,
                              const Measure& measure) {
  // Two that take turns, since others may still read the one before.
  __shared__ uint64_t sums_of_part[2][kBuckets];
  __shared__ uint64_t sums[kBuckets];
  const double fixed_target = target * static_cast<double>(uint64_t{1} << kMeasureBits);
  const int thread = static_cast<int>(threadIdx.x);
  uint64_t above = 0;
  uint32_t prefix = 0;
  int turn = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits, turn ^= 1) {
    sum_by_buckets(part.size, prefix, shift, value, measure, sums_of_part[turn]);
    cluster.synchronize();
    if (thread < kBuckets) sums[thread] = cluster.sum(&sums_of_part[turn][thread]);
    __syncthreads();
    const ChosenBucket chosen = choose_bucket(sums, above, fixed_target);
    above = chosen.above;
    prefix = prefix << kDigitBits | chosen.bucket;
  }
  // After the last digit a bucket holds equal values only; one of them tells what one measures.
  __shared__ uint64_t measure_of_one;
  if (thread == 0) measure_of_one = 0;
  __syncthreads();
  for (int i = thread; i < part.size; i += kSearchThreads) {
    if (float_order(value(i)) != prefix) continue;
    const uint64_t amount = fixed_point(measure(i));
    if (amount != 0) measure_of_one = amount;
  }
  __syncthreads();
  const uint64_t of_one = cluster.largest(measure_of_one);
  const double num_ties = ceil((fixed_target - static_cast<double>(above)) / static_cast<double>(of_one));
  return {float_of_order(prefix), fmax(1.0, num_ties)};
}

}  // namespace attend::kernels::cuda
