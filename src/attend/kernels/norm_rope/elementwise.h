// Norms, activations, and rows selected by indices. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs;
// weights and tables are f32, f16 or bf16.
#pragma once

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// out = x / sqrt(mean(x^2) + eps) * (weight + weight_offset), over the last dimension (RMSNorm, arXiv
// 1910.07467). x, out: [.., dim], last stride 1; rank 2 or 3 with any outer strides (q/k norm normalizes
// heads). weight: [dim]; on a GPU it may be read before earlier kernels of the stream have finished, like the
// weights of linear.h. weight_offset is 1 in Gemma's convention.
void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, Stream& stream,
              float weight_offset = 0.0f);

// residual += x; out = rms_norm(residual) with the same weight and offset. All are [num_tokens, hidden]; out
// may be x.
void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& out, Stream& stream, float weight_offset = 0.0f);

// residual += rms_norm(x), where the norm is rounded to the dtype of x before it is added: a norm after a
// sublayer. All are [num_tokens, hidden]; the weight is read as in rms_norm(). x is overwritten.
void rms_norm_add(const TensorView& x, const TensorView& weight, float eps, const TensorView& residual,
                  Stream& stream);

// LayerNorm: weight and bias have the same dtype. Empty weights are ones, an empty bias is zero.

// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, over the last dimension (LayerNorm, arXiv
// 1607.06450). x, out: [num_tokens, hidden], last stride 1; out may be x. weight, bias: [hidden]. Or, without
// bias, x, out: [num_tokens, num_heads, head_dim] and weight: [num_heads * head_dim], a row for each head.
void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                const TensorView& out, Stream& stream);

// residual = layer_norm(residual + x), with the sum in float32: the residual stream itself is normalized
// after a sublayer, as in BERT. Both are [num_tokens, hidden].
void add_layer_norm(const TensorView& x, const TensorView& residual, const TensorView& weight,
                    const TensorView& bias, float eps, Stream& stream);

// Activations between an MLP's two products, and the soft cap of logits. Activations are f32 on the CPU, f32,
// f16 or bf16 on GPUs.

// out = silu(gate) * up with gate_up = [gate | up]: [num_tokens, 2 * intermediate]; out: [num_tokens,
// intermediate].
void silu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);

// Like silu_mul, with GELU instead of SiLU: exact, x Phi(x) with the normal distribution function Phi, and in
// its tanh form (gelu.h).
void gelu_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);
void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out, Stream& stream);

// x = GELU(x) (arXiv 1606.08415), exact and in its tanh form, in place. x: [num_tokens, intermediate].
void gelu(const TensorView& x, Stream& stream);
void gelu_tanh(const TensorView& x, Stream& stream);

// x = max(x, 0), and x = max(x, 0)^2, in place. x: [num_tokens, intermediate], last stride 1.
void relu(const TensorView& x, Stream& stream);
void relu2(const TensorView& x, Stream& stream);
// x = silu(x), in place, with the same shapes.
void silu(const TensorView& x, Stream& stream);
// x = xIELU(x) (arXiv 2411.13010), in place, with the same shapes and a = softplus(alpha_p), b = kXieluBeta +
// softplus(alpha_n): a x^2 + kXieluBeta x if x > 0, otherwise b (e^min(x, kXieluEps) - 1 - x) + kXieluBeta x.
// alpha_p, alpha_n: f32 [1], in the memory of the device.
struct XieluAlphas {
  TensorView positive = {}, negative = {};
};
void xielu(const TensorView& x, const XieluAlphas& alphas, Stream& stream);
// x = min(max(x, -limit), limit), in place: clipped q, k and v (OLMo). x: [num_tokens, features], last stride
// 1; limit: 0 or more.
void clamp(const TensorView& x, float limit, Stream& stream);

// Functions of output gates: sigmoid(gate), and softplus(gate) = log(1 + e^gate).
enum class GateFunction : uint8_t { kSigmoid, kSoftplus };
// x = function(gate) x, in place: output gates. Last strides are 1. x: [num_tokens, num_heads, head_dim],
// gate: the same shape.
void gate_mul(const TensorView& gate, const TensorView& x, Stream& stream,
              GateFunction function = GateFunction::kSigmoid);
// Same for one gate per row. x: [num_tokens, features], gate: [num_tokens, 1]; or x: [num_tokens, num_heads,
// head_dim], gate: [num_tokens, num_heads, 1].
void scale_by_gate(const TensorView& gate, const TensorView& x, Stream& stream,
                   GateFunction function = GateFunction::kSigmoid);

// x *= factor, in place. Both are [num_tokens, features], last stride 1.
void multiply(const TensorView& factor, const TensorView& x, Stream& stream);

// x *= factor, in place. Does nothing if the factor is 1. x: [num_tokens, features], last stride 1.
void scale(const TensorView& x, float factor, Stream& stream);
// Same for a factor in the memory of the device: f32 [1].
void scale(const TensorView& x, const TensorView& factor, Stream& stream);

// x = cap tanh(x / cap), in place. x: [num_rows, num_columns]; cap above 0.
void soft_cap(const TensorView& x, float cap, Stream& stream);

// Rows selected by indices. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs; tables are f32, f16 or
// bf16. Indices are in the memory of the stream's device. On the CPU they are checked here; on a GPU the
// caller must have checked them.

// out[i] = scale * table[ids[i]], rounded once. ids: [num_tokens], table: [vocab_size, hidden], out:
// [num_tokens, hidden].
void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream,
               float scale = 1.0f);

// out[i] += table[ids[i]]: a second table, such as that of learned positions.
void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream);

// out[i] = x[rows[i]]: selects the rows of requested logits. x: [num_tokens, hidden].
void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream);

// out = x, of one dtype. x, out: [num_tokens, features], last stride 1.
void copy_rows(const TensorView& x, const TensorView& out, Stream& stream);

// Copies heads of another size: out[.., d] = x[.., d] for d below both sizes, 0 for the other d of out. x:
// [num_tokens, num_heads, dim], out: [num_tokens, num_heads, any] of the same dtype, last strides 1.
void copy_heads(const TensorView& x, const TensorView& out, Stream& stream);

// x[i] = 0 for each token with position 0. positions: [num_tokens], x: [num_tokens, features], last stride 1.
void clear_first_rows(View<const int32_t> positions, const TensorView& x, Stream& stream);

}  // namespace attend::kernels

#pragma GCC visibility pop
