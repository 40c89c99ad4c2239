// Fills a tensor with random normal values that are the same on every device.
//
//   tile        grid-stride, one element per thread
//   warps       8, all alike
//   registers   16
//   shared      none
//   bytes       the tensor written once
//   bound       integer and float arithmetic
#include <algorithm>

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/fill_random.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

__global__ void __launch_bounds__(kThreads)
    fill_random_kernel(const __grid_constant__ FillRandomParams params) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < params.count; i += step)
    store_element(params.data, i, params.element, params.numbers.at(i));
}

}  // namespace

void launch_fill_random(const FillRandomParams& params, void* stream) {
  if (params.count == 0) return;
  const auto num_ctas = static_cast<unsigned>(std::min(kMaxCtas, (params.count + kThreads - 1) / kThreads));
  fill_random_kernel<<<num_ctas, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(params);
  attend::cuda::check(cudaGetLastError(), "fill_random");
}

}  // namespace attend::kernels::cuda
