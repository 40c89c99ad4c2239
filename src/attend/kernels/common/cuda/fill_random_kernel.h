// Random numbers into a tensor, on the device.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/random_normal.h"

namespace attend::kernels::cuda {

struct FillRandomParams {
  void* data;
  int64_t count;  // elements
  Element element;
  RandomNormal numbers;
};

// `stream` is a cudaStream_t. Throws Error(kDevice) when the launch fails.
void launch_fill_random(const FillRandomParams& params, void* stream);

}  // namespace attend::kernels::cuda
