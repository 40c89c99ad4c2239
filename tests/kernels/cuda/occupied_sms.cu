#include "attend/tensor/cuda_check.h"
#include "tests/kernels/cuda/occupied_sms.h"

namespace attend::testing_cuda {
namespace {

constexpr int kThreads = 1024, kSharedBytes = 40 * 1024;

__device__ int64_t nanoseconds_now() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void occupied_sms_kernel(int64_t nanoseconds) {
  const int64_t end = nanoseconds_now() + nanoseconds;
  while (nanoseconds_now() < end) __nanosleep(1000);
}

}  // namespace

void launch_occupied_sms(int num_sms, int64_t nanoseconds, void* stream) {
  occupied_sms_kernel<<<num_sms, kThreads, kSharedBytes, static_cast<cudaStream_t>(stream)>>>(nanoseconds);
  cuda::check(cudaGetLastError(), "occupied SMs");
}

}  // namespace attend::testing_cuda
