// Rounds rows of x to fp8 for fp8 x fp8 products, optionally after RMSNorm.
//
//   tile        one row per CTA; sixteen neighboring threads hold a block of inputs that share a scale
//   warps       up to 16, all alike: threads hold groups of eight elements with a stride of the thread count
//   registers   8 or 32 hold the row
//   shared      two values per warp
//   bytes       x read once, quantized values written once
//   bound       memory; latency if rows are few
#include <algorithm>

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/common/round_rows_kernel.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kMaxThreads = 512, kMaxGroups = 8;  // kMaxGroups: per thread
static_assert(kMaxThreads * kMaxGroups * kGroupElements >= kMaxRoundedInputs);
constexpr float kLargest = 448.0f;            // largest e4m3 value
constexpr float kSmallestMagnitude = 1e-30f;  // smallest maximum of a row that is not treated as 0: keeps
                                              // factors finite

// Reduces over all threads with the binary operation `op`; `memory`: one value per warp.
template <class Op>
__device__ float cta_reduce(float value, float* memory, const Op& op) {
  for (int step = 16; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, step));
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = value;
  __syncthreads();
  value = memory[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / 32; ++warp) value = op(value, memory[warp]);
  return value;
}

// Returns the larger value; NaN counts as the largest.
__device__ float larger(float a, float b) { return a > b || isnan(a) ? a : b; }

// Threads that hold a block of inputs.
constexpr int kBlockThreads = kRoundedBlockInputs / kGroupElements;

__device__ float quantization_factor(float largest) {
  return largest < kSmallestMagnitude ? 0.0f : kLargest / largest;
}

template <class T, int kGroups>
__global__ void __launch_bounds__(kMaxThreads)
    round_rows_kernel(const __grid_constant__ RoundRowsParams params) {
  __shared__ float sums[kMaxThreads / 32], magnitudes[kMaxThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), num_threads = static_cast<int>(blockDim.x);
  const int num_groups = params.in_features / kGroupElements;
  ptx::griddepcontrol_wait();
  ptx::launch_dependents();
  if (params.group_scales != nullptr)
    for (int o = static_cast<int>(blockIdx.x) * num_threads + thread; o < params.num_outs;
         o += static_cast<int>(gridDim.x) * num_threads)
      params.out_scales[o] = params.group_scales[o / params.group_outs];

  const int64_t row = blockIdx.x;
  const auto* const x =
      reinterpret_cast<const uint4*>(static_cast<const T*>(params.x) + row * params.x_stride);
  uint4 bits[kGroups] = {};
#pragma unroll
  for (int i = 0; i < kGroups; ++i)
    if (const int g = thread + i * num_threads; g < num_groups) bits[i] = x[g];
  if (params.norm != nullptr) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float group[kGroupElements];
      convert_16_bit_group<T>(bits[i], group);
#pragma unroll
      for (const float value : group) sum = fmaf(value, value, sum);
    }
    sum = cta_reduce(sum, sums, [](float a, float b) { return a + b; });
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(params.in_features) + params.norm_eps);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int g = thread + i * num_threads;
      if (g >= num_groups) break;
      float group[kGroupElements], weights[kGroupElements];
      convert_16_bit_group<T>(bits[i], group);
      convert_16_bit_group<T>(static_cast<const uint4*>(params.norm)[g], weights);
#pragma unroll
      for (int j = 0; j < kGroupElements; ++j) group[j] *= scale * weights[j];
      store_16_bit_group(reinterpret_cast<T*>(&bits[i]), group);
    }
  }
  const auto group_max = [&](int i) {
    float group[kGroupElements], largest = 0.0f;
    convert_16_bit_group<T>(bits[i], group);
#pragma unroll
    for (const float value : group) largest = larger(largest, fabsf(value));
    return largest;
  };
  float factor = 0.0f;
  if (!params.block_scales) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) largest = larger(largest, group_max(i));
    largest = cta_reduce(largest, magnitudes, [](float a, float b) { return larger(a, b); });
    factor = quantization_factor(largest);
    if (thread == 0) params.scales[row] = largest / kLargest;
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int g = thread + i * num_threads;
    // Threads of a warp exit the loop together, because the threads of a block shuffle.
    if (g - thread % 32 >= num_groups) break;
    if (params.block_scales) {
      float largest = group_max(i);
#pragma unroll
      for (int step = kBlockThreads / 2; step > 0; step /= 2)
        largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, step));
      factor = quantization_factor(largest);
      if (g % kBlockThreads == 0 && g < num_groups)
        params.scales[int64_t{g / kBlockThreads} * params.block_stride + row] = largest / kLargest;
    }
    if (g >= num_groups) continue;
    float group[kGroupElements];
    convert_16_bit_group<T>(bits[i], group);
#pragma unroll
    for (float& value : group) value *= factor;
    store_any_group(params.to, row * params.in_features + int64_t{g} * kGroupElements, Element::kF8E4M3,
                    group);
  }
}

}  // namespace

void launch_round_rows(const RoundRowsParams& params, void* stream) {
  const int num_groups = params.in_features / kGroupElements;
  const int num_threads = std::clamp((num_groups + 63) / 64 * 32, 64, kMaxThreads);
  const auto launch = [&]<int kGroups>() {
    launch_dependent<RoundRowsParams>(
        params.element == Element::kBF16 ? round_rows_kernel<__nv_bfloat16, kGroups>
                                         : round_rows_kernel<__half, kGroups>,
        dim3(static_cast<unsigned>(params.num_rows)), num_threads, 0, stream, params, "linear: x in fp8");
  };
  if (num_groups <= 2 * num_threads) return launch.template operator()<2>();
  launch.template operator()<kMaxGroups>();
}

}  // namespace attend::kernels::cuda
