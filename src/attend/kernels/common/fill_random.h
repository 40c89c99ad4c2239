// Fills a tensor with random values on its device.
#pragma once

#include "attend/kernels/common/random_normal.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Sets element i of `out`, in row-major order, to numbers.at(i), rounded to nearest even. out: f32, f16 or
// bf16, contiguous, on the stream's device. The bits are the same on every device. Throws
// Error(kInvalidArgument) for another dtype, layout or device, and Error(kDevice) if a launch fails.
void fill_random(const TensorView& out, const RandomNormal& numbers, Stream& stream);

}  // namespace attend::kernels
