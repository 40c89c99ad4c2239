// Code shared by kernels that iterate over rows: sums over a CTA, the fastest row type, numbers of threads.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "attend/kernels/common/cuda/row_groups.cuh"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxNormThreads = 512;

__device__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__device__ float cta_sum(float value) {
  __shared__ float warp_sums[kMaxNormThreads / 32];
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < num_warps; ++warp) sum += warp_sums[warp];
  return sum;
}

// Calls launch.operator()<Row>() with the fastest supported row type.
template <class Launch>
void launch_for_rows(bool aligned, std::initializer_list<Element> elements, const Launch& launch) {
  const Element element = *elements.begin();
  const bool whole =
      aligned && std::all_of(elements.begin(), elements.end(), [=](Element one) { return one == element; });
  if (whole && element == Element::kBF16) return launch.template operator()<AlignedRow<__nv_bfloat16>>();
  if (whole && element == Element::kF16) return launch.template operator()<AlignedRow<__half>>();
  launch.template operator()<UnalignedRow>();
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Returns the number of threads for `count` items, one per item, in whole warps and at most `most`.
int num_threads_for(int count, int most) { return std::clamp(ceil_div(count, 32) * 32, 32, most); }

}  // namespace
}  // namespace attend::kernels::cuda
