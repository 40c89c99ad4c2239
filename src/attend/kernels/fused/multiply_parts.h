// Linear layer in parts, one product each.
#pragma once

#include "attend/kernels/fused/operations.h"

namespace attend::kernels {

// Returns whether a product with the weight is one rank's part of a sum.
bool is_partial(const Weight& weight, const OpContext& context);

// Returns whether adapters of the step change the layer.
bool adapts(LinearParts linear, const OpContext& context);

// out = W x + b; the columns of out are those of the parts, concatenated. Partial products are all-reduced.
void multiply_parts(const TensorView& x, LinearParts linear, const TensorView& out, const OpContext& context);

}  // namespace attend::kernels
