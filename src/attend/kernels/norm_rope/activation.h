// What stands between an MLP's two products, and the cap of logits. Activations are f32 on the CPU, f32,
// f16 or bf16 on GPUs.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// out = silu(gate) * up with gate_up = [gate | up]: [num_tokens, 2 * intermediate]; out: [num_tokens,
// intermediate].
void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);

// The same with GELU in place of SiLU, exactly, x Phi(x) with Phi the normal distribution's, and in its tanh
// form (gelu.h).
void gelu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);
void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);

// x = GELU(x) (arXiv 1606.08415), and the same in its tanh form, in place. x: [num_tokens, intermediate].
void gelu(const TensorView& x, Stream& stream);
void gelu_tanh(const TensorView& x, Stream& stream);

// x = cap tanh(x / cap), in place. x: [num_rows, num_columns]; cap above 0.
void soft_cap(const TensorView& x, float cap, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
