#include "attend/kernels/fused/latent_linear.h"

#include "attend/kernels/fused/multiply_parts.h"
#include "attend/kernels/norm_rope/norm.h"

namespace attend::kernels {

void latent_linear(const TensorView& x, const Norm& norm, const Linear& linear, const TensorView& out,
                   const OpContext& context) {
  rms_norm(x, norm.weight, norm.eps, x, context.stream);
  multiply_parts(x, {&linear, 1}, out, context);
}

}  // namespace attend::kernels
