// What stands between a gated MLP's two products. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// out = silu(gate) * up with gate_up = [gate | up]: [num_tokens, 2 * intermediate]; out: [num_tokens,
// intermediate].
void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
