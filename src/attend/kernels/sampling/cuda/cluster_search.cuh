// Searches by a cluster of CTAs of kSearchThreads threads over measures of the elements of a row. A row has
// kSlices consecutive slices, and each CTA has the same number of them. Elements are indexed within the CTA's
// part, which consists of these slices. All threads of the cluster call these functions and get the result.
// Sums are computed per slice, in an order that depends only on the slice's length, so results do not depend
// on the number of CTAs.
#pragma once

#include <climits>
#include <cstdint>

#include "attend/kernels/common/cuda/ptx/cluster.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"

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

inline constexpr int kSlices = 8;  // maximum CTAs per cluster: the portable cluster size

// Exchanges data between the CTAs of a cluster through distributed shared memory.
class Cluster {
 public:
  // `words`: 2 kSlices words of shared memory, a double buffer: a CTA that completes the second exchange has
  // read the first one.
  __device__ explicit Cluster(uint64_t* words)
      : words_(words), rank_(ptx::cluster_rank()), size_(ptx::cluster_size()) {}

  __device__ int rank() const { return rank_; }
  __device__ int size() const { return size_; }
  __device__ int slices_per_cta() const { return kSlices / size_; }
  __device__ int first_cta_slice() const { return rank_ * slices_per_cta(); }

  // Also synchronizes the threads of a CTA.
  __device__ void synchronize() const {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }

  // Sets all[first_cta_slice() + j] = own(j). All threads of the CTA call own(j) for each of their slices in
  // order.
  template <class Own>
  __device__ void gather(const Own& own, uint64_t (&all)[kSlices]) {
    uint64_t* const words = words_ + buffer_ * kSlices;
    buffer_ ^= 1;
    for (int j = 0; j < slices_per_cta(); ++j) {
      const uint64_t mine = own(j);
      if (threadIdx.x == 0) words[first_cta_slice() + j] = mine;
    }
    synchronize();
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) all[slice] = load(words + slice, slice * size_ / kSlices);
  }
  // Returns the maximum of the CTAs' values.
  __device__ uint64_t largest(uint64_t mine) {
    uint64_t all[kSlices];
    gather([=](int) { return mine; }, all);
    uint64_t found = 0;
    for (const uint64_t other : all) found = other > found ? other : found;
    return found;
  }

  // Returns the sum of a word of shared memory over the CTAs, after a synchronize().
  __device__ uint64_t sum(const uint64_t* word) const {
    uint64_t total = 0;
    for (int rank = 0; rank < size_; ++rank) total += load(word, rank);
    return total;
  }

 private:
  __device__ static uint64_t load(const uint64_t* word, int rank) {
    return ptx::ld_shared_cluster(ptx::mapa(ptx::shared_address(word), rank));
  }

  uint64_t* words_;
  int rank_, size_;
  int buffer_ = 0;
};

// Elements of a CTA: its slices, of `slice_size` elements each, except those at the end of the row.
struct Part {
  int size;
  int slice_size;

  __device__ int slice_begin(int j) const { return min(size, j * slice_size); }
};

__device__ inline uint64_t double_to_bits(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
__device__ inline double bits_to_double(uint64_t bits) {
  return __longlong_as_double(static_cast<int64_t>(bits));
}

// Sum of measure(i) over [begin, end) of a CTA's part.
template <class Measure>
__device__ double cta_total(int begin, int end, const Measure& measure) {
  __shared__ double totals[kSearchWarps];
  double mine = 0.0;
#pragma unroll 4
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kSearchThreads) mine += measure(i);
  mine = warp_total(mine);
  __syncthreads();
  if (lane_idx() == 0) totals[warp_idx()] = mine;
  __syncthreads();
  double total = 0.0;
  for (int warp = 0; warp < kSearchWarps; ++warp) total += totals[warp];
  return total;
}

// Computes the sums of all slices of the row.
template <class Measure>
__device__ void slice_totals(Cluster& cluster, const Part& part, const Measure& measure,
                             double (&totals)[kSlices]) {
  uint64_t all[kSlices];
  cluster.gather(
      [&](int j) { return double_to_bits(cta_total(part.slice_begin(j), part.slice_begin(j + 1), measure)); },
      all);
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) totals[slice] = bits_to_double(all[slice]);
}

// Adds the sums from the first slice to the last.
__device__ inline double sum_slices(const double (&totals)[kSlices]) {
  double total = 0.0;
  for (const double one : totals) total += one;
  return total;
}

// Returns the first i in [begin, end) of a CTA's part at which `before` plus the sum of measures of [begin,
// i] exceeds `target`. Measures are at least 0. If rounding keeps the sum below the target, returns the last
// i with a measure above 0; without any, `end`.
//
// Each warp sums a part of the range, and the part that contains the answer becomes the next range.
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
  // Every warp computes the rest, with the same result.
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

// Like first_exceeding_in_cta(), over all slices, which have sums `totals`. Returns an element of the row. At
// least one measure is above 0.
template <class Measure>
__device__ int first_exceeding(Cluster& cluster, const Part& part, double target,
                               const double (&totals)[kSlices], const Measure& measure) {
  int chosen = 0;
  double sum = 0.0, before = 0.0;
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    if (totals[slice] == 0.0 || (sum > 0.0 && sum > target)) continue;
    chosen = slice;
    before = sum;
    sum += totals[slice];
  }
  const int j = chosen - cluster.first_cta_slice();
  int found = 0;
  if (0 <= j && j < cluster.slices_per_cta())
    found = cluster.first_cta_slice() * part.slice_size +
            first_exceeding_in_cta(part.slice_begin(j), part.slice_begin(j + 1), before, target, measure);
  return static_cast<int>(cluster.largest(static_cast<uint64_t>(found)));
}

}  // namespace attend::kernels::cuda
