// Weights that are no numbers.
#pragma once

#include <string>

#include "attend/tensor/tensor.h"

namespace attend {

// Reads every element, on all threads. Throws Error(kCorruptFile) naming `where`, the element and its value
// when one is NaN or infinite. The tensor is contiguous, in float32, float16, bfloat16 or fp8_e4m3, in host
// memory.
void check_finite(const TensorView& tensor, const std::string& where);

}  // namespace attend
