#include "attend/kernels/norm_rope/layer_norm.h"

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {
namespace {

void check_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const Stream& stream) {
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  require_norm_weight(weight, x.shape[1], stream);
  require_shape("bias", bias, {x.shape[1]});
  require_on(stream, "bias", bias);
  require(bias.dtype == weight.dtype, "bias of ", bias.dtype, ": expected ", weight.dtype,
          ", that of the weight");
}

}  // namespace

void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                const TensorView& out, Stream& stream) {
  check_layer_norm(x, weight, bias, stream);
  require_matrix("out", out, x.shape[0], x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::layer_norm(x, {}, weight, bias, eps, out, stream);
  cpu::layer_norm(x, weight, bias, eps, out, cpu::detect_isa());
}

void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                    const TensorView& bias, float eps, Stream& stream) {
  check_layer_norm(x, weight, bias, stream);
  require_matrix("residual", residual, x.shape[0], x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::layer_norm(residual, x, weight, bias, eps, residual, stream);
  cpu::add_layer_norm(x, residual, weight, bias, eps, cpu::detect_isa());
}

}  // namespace attend::kernels
