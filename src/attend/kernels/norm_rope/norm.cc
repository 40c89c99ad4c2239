#include "attend/kernels/norm_rope/norm.h"

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset) {
  require(!x.empty(), "x: not given");
  require(x.rank == 2 || x.rank == 3, "x ", x, ": expected 2 or 3 dimensions");
  if (x.rank == 2)
    require_shape("out", out, {x.shape[0], x.shape[1]});
  else
    require_shape("out", out, {x.shape[0], x.shape[1], x.shape[2]});
  require_activation_of(stream, "x", x);
  require_activation_of(stream, "out", out);
  require_norm_weight(weight, x.shape[static_cast<size_t>(x.rank) - 1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::rms_norm(x, weight, eps, out, stream, weight_offset);
  cpu::rms_norm(x, weight, eps, out, weight_offset, cpu::detect_isa());
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream, float weight_offset) {
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  require_matrix("residual", residual, x.shape[0], x.shape[1], stream);
  require_matrix("out", out, x.shape[0], x.shape[1], stream);
  require_norm_weight(weight, x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu)
    return cuda::add_rms_norm(x, residual, weight, eps, out, stream, weight_offset);
  cpu::add_rms_norm(x, residual, weight, eps, out, weight_offset, cpu::detect_isa());
}

void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Stream& stream) {
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  require_matrix("residual", residual, x.shape[0], x.shape[1], stream);
  require_norm_weight(weight, x.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::rms_norm_add(x, weight, eps, residual, stream);
  cpu::rms_norm_add(x, weight, eps, residual, cpu::detect_isa());
}

}  // namespace attend::kernels
