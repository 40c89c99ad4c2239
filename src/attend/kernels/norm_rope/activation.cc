#include "attend/kernels/norm_rope/activation.h"

#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {

void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  require_rank("out", out, 2);
  require_activation_of(stream, "out", out);
  require_matrix("gate_up", gate_up, out.shape[0], 2 * out.shape[1], stream);
  if (const OnGpu gpu(stream); gpu) return cuda::silu_mul(gate_up, out, stream);
  cpu::silu_mul(gate_up, out, cpu::detect_isa());
}

}  // namespace attend::kernels
