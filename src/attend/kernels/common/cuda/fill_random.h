// Random numbers on a GPU. As the function of fill_random.h, which checks and calls this.
#pragma once

#include "attend/kernels/common/fill_random.h"

namespace attend::kernels::cuda {

void fill_random(const TensorView& out, const RandomNormal& numbers, Stream& stream);

}  // namespace attend::kernels::cuda
