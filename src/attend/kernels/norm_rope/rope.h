// Rotary embeddings of q and k, with the norms of their heads. Activations are f32 on the CPU, f32, f16 or
// bf16 on GPUs; weights f32, f16 or bf16. Positions lie where the stream runs: on the CPU they are checked
// here, on a GPU the caller has checked them.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Rotates pairs (i, i + rotary_dim / 2) of each head in place by the angle of its token's position (the
// "NeoX" pairing that Hugging Face's models use). x: [num_tokens, num_heads, head_dim], last stride 1; cos,
// sin: f32 [num_positions, rotary_dim / 2] with the attention factor applied; positions: [num_tokens]. On a
// GPU these three are read early, as by norm_rope().
void rope(const TensorView& x, View<const int32_t> positions, const TensorView& cos, const TensorView& sin,
          Stream& stream);

// What q and k go through before attention, in one launch: each head normed as rms_norm does, where there is
// a weight, then rotated as rope does. k may be empty. On a GPU positions, cos, sin and the norms' weights
// are read before the kernels launched before on the stream have ended, so none of these may write them: who
// writes them in a kernel (but dynamic_angles(), which lets none begin before it has ended) synchronises, or
// records an event behind it, first.
struct NormRopeArgs {
  TensorView q = {}, k = {};            // [num_tokens, num_heads, head_dim], last stride 1; changed in place
  TensorView q_norm = {}, k_norm = {};  // [head_dim]; empty: not normed
  float eps = 1e-6f;
  View<const int32_t> positions = {};  // [num_tokens]
  TensorView cos = {}, sin = {};       // as rope
};
// Shapes, dtypes, devices and, on the CPU, positions; throws Error naming what is wrong.
void check(const NormRopeArgs& args, const Stream& stream);
void norm_rope(const NormRopeArgs& args, Stream& stream);

// Angles of rope type "dynamic", whose base grows with a length ("dynamic NTK", as transformers computes it):
// a token of a prompt takes the prompt's length, a generated one its request's with it, L0 at least. Row t of
// cos and sin belongs to token t:
//   angle = position * base^(-2i / d), base = theta * (factor * length / L0 - (factor - 1))^(d / (d - 2))
// Tokens behind the last request get angles of 0.
struct DynamicAnglesArgs {
  View<const int32_t> positions = {};    // [num_tokens]
  View<const int32_t> cu_seqlen_q = {};  // [num_reqs + 1]
  View<const int32_t> prompt_lens = {};  // [num_reqs]
  double theta = 10000.0, factor = 1.0;
  int original_length = 0;        // L0
  TensorView cos = {}, sin = {};  // f32 [num_tokens, d / 2], contiguous; written
};
// Throws Error(kUnsupported) on the CPU, where whoever steps knows the lengths.
void dynamic_angles(const DynamicAnglesArgs& args, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
