#include "attend/kernels/norm_rope/activation.h"

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"

namespace attend::kernels {
namespace {

void check_gated(const TensorView& gate_up, const TensorView& out, const Stream& stream) {
  require_rank("out", out, 2);
  require_activation_of(stream, "out", out);
  require_matrix("gate_up", gate_up, out.shape[0], 2 * out.shape[1], stream);
}

}  // namespace

void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  check_gated(gate_up, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::silu_mul(gate_up, out, stream);
  cpu::silu_mul(gate_up, out, cpu::detect_isa());
}

void gelu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  check_gated(gate_up, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::gelu_mul(gate_up, out, stream);
  cpu::gelu_mul(gate_up, out, cpu::detect_isa());
}

void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Stream& stream) {
  check_gated(gate_up, out, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::gelu_tanh_mul(gate_up, out, stream);
  cpu::gelu_tanh_mul(gate_up, out, cpu::detect_isa());
}

void gelu(const TensorView& x, Stream& stream) {
  require_cpu(stream, "gelu");
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  cpu::gelu(x, cpu::detect_isa());
}

void gelu_tanh(const TensorView& x, Stream& stream) {
  require_cpu(stream, "gelu_tanh");
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  cpu::gelu_tanh(x, cpu::detect_isa());
}

void soft_cap(const TensorView& x, float cap, Stream& stream) {
  require_rank("x", x, 2);
  require_activation_of(stream, "x", x);
  require(cap > 0.0f, "cap ", cap, ": expected a number above 0");
  if (const OnGpu gpu(stream); gpu) return cuda::soft_cap(x, cap, stream);
  cpu::soft_cap(x, cap, cpu::detect_isa());
}

}  // namespace attend::kernels
