// A dense layer behind a latent vector, as a model speaks of it.
#pragma once

#include "attend/kernels/fused/residual.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// out = W norm(x) + b. x: [num_tokens, in_features], last stride 1; overwritten. Throws as
// rms_norm() and linear() do.
void latent_linear(const TensorView& x, const Norm& norm, const Linear& linear, const TensorView& out,
                   const OpContext& context);

}  // namespace attend::kernels
#pragma GCC visibility pop
