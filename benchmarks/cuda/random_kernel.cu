#include <cuda_bf16.h>

#include "attend/tensor/cuda_check.h"
#include "benchmarks/cuda/random_kernel.h"

namespace attend::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 8;  // of a thread at once

// splitmix64's finaliser (https://prng.di.unimi.it/splitmix64.c).
__device__ uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__global__ void __launch_bounds__(kThreads) fill_kernel(uint4* data, int64_t num_runs, float range) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t run = int64_t{blockIdx.x} * kThreads + threadIdx.x; run < num_runs; run += step) {
    uint4 bits;
    auto* const elements = reinterpret_cast<__nv_bfloat16*>(&bits);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const auto uniform =
          static_cast<float>(mix(static_cast<uint64_t>(run * kElements + i)) >> 40) * 0x1p-23f;
      elements[i] = __float2bfloat16_rn((uniform - 1.0f) * range);
    }
    data[run] = bits;
  }
}

}  // namespace

void launch_fill_random(void* data, int64_t count, float range, void* stream) {
  fill_kernel<<<4096, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<uint4*>(data),
                                                                        count / kElements, range);
  attend::cuda::check(cudaGetLastError(), "fill kernel");
}

}  // namespace attend::bench
