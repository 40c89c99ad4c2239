// LayerNorm. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs; weights and biases f32, f16 or bf16,
// both alike.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, over the last dimension (LayerNorm, arXiv
// 1607.06450). x, out: [num_tokens, hidden], last stride 1; out may be x. weight, bias: [hidden].
void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                const TensorView& out, Stream& stream);

// residual = layer_norm(residual + x), the sum in float32: the stream itself is normalized after a sublayer,
// as in BERT. Both [num_tokens, hidden].
void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                    const TensorView& bias, float eps, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
