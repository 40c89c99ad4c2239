#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "tests/kernels/cuda/support/late_rows.h"

namespace attend::testing_cuda {
namespace {

// Few, so that CTAs of attention fit on the SMs at the same time.
constexpr int kCtas = 16, kThreads = 128;

struct Params {
  const LateRow* rows;
  int num_rows;
  int64_t nanoseconds;
};

__device__ int64_t nanoseconds_now() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void late_rows_kernel(const __grid_constant__ Params params) {
  kernels::cuda::ptx::griddepcontrol_wait();
  kernels::cuda::ptx::launch_dependents();
  const int64_t end = nanoseconds_now() + params.nanoseconds;
  while (nanoseconds_now() < end) __nanosleep(100);
  for (int r = static_cast<int>(blockIdx.x); r < params.num_rows; r += kCtas) {
    const LateRow row = params.rows[r];
    for (int64_t i = threadIdx.x; i < row.num_bytes; i += kThreads)
      static_cast<char*>(row.to)[i] = static_cast<const char*>(row.from)[i];
  }
}

}  // namespace

void launch_late_rows(const LateRow* rows, int num_rows, int64_t nanoseconds, void* stream) {
  kernels::cuda::launch_dependent<Params>(late_rows_kernel, kCtas, kThreads, 0, stream,
                                          {rows, num_rows, nanoseconds}, "late rows");
}

}  // namespace attend::testing_cuda
