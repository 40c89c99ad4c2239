// derive_batch (batch_arrays.h) on a GPU: one launch over arrays in its memory.
#pragma once

#include "attend/kernels/batch_arrays.h"

namespace attend::kernels::cuda {

void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream);

}  // namespace attend::kernels::cuda
