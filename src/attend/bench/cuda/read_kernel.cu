#include <cstdint>

#include "attend/bench/cuda/read_kernel.h"
#include "attend/tensor/cuda_check.h"

namespace attend::bench {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 8;

__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, size_t count, float* sink) {
  uint32_t sum = 0;
  const size_t stride = size_t{gridDim.x} * kThreads;
  size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) values[u] = __ldcs(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum += values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
  }
  for (; i < count; i += stride) sum += data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  if (sum == 0x12345678u) *sink = 1.0f;
}

}  // namespace

void launch_read(const void* data, size_t num_bytes, float* sink, int num_ctas, void* stream) {
  read_kernel<<<num_ctas, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4*>(data),
                                                                            num_bytes / 16, sink);
  attend::cuda::check(cudaGetLastError(), "read kernel");
}

}  // namespace attend::bench
