// Random values on a GPU. Called by fill_random() of kernels/common/fill_random.h, which checks its
// arguments.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/common/random_normal.h"

namespace attend::kernels::cuda {

// Parameters of the kernel that fills a tensor with random values.

struct FillRandomParams {
  void* data;
  int64_t count;  // in elements
  Element element;
  RandomNormal numbers;
};

// `stream` is a cudaStream_t. Throws Error(kDevice) if the launch fails.
void launch_fill_random(const FillRandomParams& params, void* stream);

void fill_random(const TensorView& out, const RandomNormal& numbers, Stream& stream);

}  // namespace attend::kernels::cuda
