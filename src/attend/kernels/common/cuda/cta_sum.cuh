// Sum over the threads of a CTA.
#pragma once

namespace attend::kernels::cuda {

template <class T>
struct CtaSum {
  T before;     // sum of lower threads
  T total;      // sum of all threads
  int largest;  // largest candidate of all threads
};

// Sums `value` and finds the largest `candidate`; candidates are at least 0. Called by all threads.
template <int kThreads, class T>
__device__ CtaSum<T> cta_sum(T value, int candidate) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kThreads % 32 == 0 && kWarps <= 32);
  __shared__ T warp_sums[kWarps];
  __shared__ int warp_largest[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto sum_up_to_lane = [lane](T sum) {
    for (int step = 1; step < 32; step *= 2) {
      const T other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    return sum;
  };
  const T up_to_lane = sum_up_to_lane(value);
  const int largest = __reduce_max_sync(0xffffffffu, candidate);
  // Waits for readers of the previous call's sums.
  __syncthreads();
  if (lane == 31) {
    warp_sums[warp] = up_to_lane;
    warp_largest[warp] = largest;
  }
  __syncthreads();
  if constexpr (kWarps <= 8) {
    CtaSum<T> sum{up_to_lane - value, 0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) sum.before += warp_sums[w];
      sum.total += warp_sums[w];
      sum.largest = max(sum.largest, warp_largest[w]);
    }
    return sum;
  } else {
    const T up_to_warp = sum_up_to_lane(lane < kWarps ? warp_sums[lane] : 0);
    const T before_warp = __shfl_sync(0xffffffffu, up_to_warp, max(warp - 1, 0));
    return {.before = up_to_lane - value + (warp == 0 ? 0 : before_warp),
            .total = __shfl_sync(0xffffffffu, up_to_warp, kWarps - 1),
            .largest = __reduce_max_sync(0xffffffffu, lane < kWarps ? warp_largest[lane] : 0)};
  }
}

}  // namespace attend::kernels::cuda
