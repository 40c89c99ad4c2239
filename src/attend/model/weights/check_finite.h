// Checks weights for NaN and infinite elements.
#pragma once

#include <string>

#include "attend/tensor/tensor.h"

namespace attend {

// Reads every element, on all threads. If one is NaN or infinite, throws Error(kCorruptFile) with `where`,
// the element's index and its value. The tensor is contiguous, in float32, float16, bfloat16 or fp8_e4m3, in
// host memory.
void check_finite(const TensorView& tensor, const std::string& where);

}  // namespace attend
