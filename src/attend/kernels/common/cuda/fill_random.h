// Random numbers on a GPU. As the function of fill_random.h, which checks and calls this.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/common/random_normal.h"

namespace attend::kernels::cuda {

// Random numbers into a tensor, on the device.

struct FillRandomParams {
  void* data;
  int64_t count;  // elements
  Element element;
  RandomNormal numbers;
};

// `stream` is a cudaStream_t. Throws Error(kDevice) when the launch fails.
void launch_fill_random(const FillRandomParams& params, void* stream);

void fill_random(const TensorView& out, const RandomNormal& numbers, Stream& stream);

}  // namespace attend::kernels::cuda
