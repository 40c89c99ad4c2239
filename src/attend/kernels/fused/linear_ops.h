// Linear layers of a model: each reads the normalized residual stream, or adds to it. A device fuses what it
// can; results are those of the separate steps, in the dtype of the activations.
#pragma once

#include "attend/kernels/fused/residual.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// out = W norm(residual) + b, for the tokens `rows` or for all.
struct NormLinearArgs {
  Norm norm;
  LinearParts linear;
  TensorView out;  // [num_rows, out_features]: dtype of the residual, or f32
  // [num_rows] tokens in ascending order; empty, or the number of tokens: all of them
  View<const int32_t> rows = {};
};
// These functions throw Error(kInvalidArgument) for invalid shapes and dtypes, like linear(), gated_linear()
// and the norms.
void norm_linear(Residual& residual, const NormLinearArgs& args, const OpContext& context);

// out = norm(residual) for all tokens, in the dtype of the residual: hidden states, for embeddings. Without a
// norm, copies the stream; CPUs only.
void read(Residual& residual, const Norm& norm, const TensorView& out, const OpContext& context);

// out = act(gate) * up with [gate | up] = W norm(residual) + b: first half of a gated MLP.
enum class Activation : uint8_t { kSilu, kGeluTanh };
struct NormGatedLinearArgs {
  Norm norm;
  LinearParts gate_up;  // out_features: gate, then up
  Activation activation = Activation::kSilu;
  TensorView gate_up_out;  // [num_tokens, 2 * intermediate_size]: scratch
  TensorView out;          // [num_tokens, intermediate_size]
};
void norm_gated_linear(Residual& residual, const NormGatedLinearArgs& args, const OpContext& context);

// out = act(W norm(residual) + b): first half of an MLP without a gate. Throws Error(kUnsupported) on a GPU.
enum class PlainActivation : uint8_t { kGelu, kGeluTanh };
struct NormActivatedLinearArgs {
  Norm norm;
  LinearParts linear;
  PlainActivation activation = PlainActivation::kGelu;
  TensorView out;  // [num_tokens, out_features]
};
void norm_activated_linear(Residual& residual, const NormActivatedLinearArgs& args, const OpContext& context);

// residual += post_norm(W x + b); without a post_norm, residual += W x + b.
void linear_add(const TensorView& x, const Linear& linear, Residual& residual, const OpContext& context,
                const Norm& post_norm = {});

// residual = norm(residual + W x + b): the stream itself is normalized after a sublayer. Throws
// Error(kUnsupported) on a GPU.
void linear_add_norm(const TensorView& x, const Linear& linear, Residual& residual, const LayerNorm& norm,
                     const OpContext& context);

// Linear layer of a normalized latent vector.

// out = W norm(x) + b. x: [num_tokens, in_features], last stride 1; overwritten. Throws the errors of
// rms_norm() and linear().
void latent_linear(const TensorView& x, const Norm& norm, const Linear& linear, const TensorView& out,
                   const OpContext& context);

}  // namespace attend::kernels

#pragma GCC visibility pop
