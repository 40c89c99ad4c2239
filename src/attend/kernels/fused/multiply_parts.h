// Linear layer in parts, one product each.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels {

// out = W x + b; the columns of out are those of the parts, concatenated.
void multiply_parts(const TensorView& x, LinearParts linear, const TensorView& out, const OpContext& context);

}  // namespace attend::kernels
