// Gated delta rule with a decay per head (Gated DeltaNet, arXiv 2412.06464) or per channel of k (KDA, arXiv
// 2510.26692), and the gated norm of its output.
#pragma once

#include "attend/kernels/recurrent/recurrent_batch.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Largest head_dim_k.
inline constexpr int64_t kMaxDeltaHeadDim = 256;
// Requests with fewer new tokens need no workspace.
inline constexpr int kMinDeltaChunkTokens = 32;

// Activations are f32 on the CPU, and all of one dtype on GPUs: f32, f16 or bf16. Key head j serves the value
// heads j r to j r + r - 1, with r = num_v_heads / num_k_heads.
struct GatedDeltaArgs {
  TensorView q, k;  // [num_tokens, num_k_heads, head_dim_k], last stride 1; not normalized
  TensorView v;     // [num_tokens, num_v_heads, head_dim_v], last stride 1
  // Input of the decay, last stride 1: [num_tokens, num_k_heads, r], or per channel [num_tokens, num_v_heads,
  // head_dim_k].
  TensorView alpha;
  TensorView beta;          // [num_tokens, num_k_heads, r], last stride 1: beta before its sigmoid
  TensorView a_log;         // f32 [num_v_heads], contiguous
  TensorView dt_bias;       // f32 [num_v_heads], or per channel [num_v_heads, head_dim_k], contiguous
  float beta_scale = 1.0f;  // 2 allows negative eigenvalues of the transition
  // Below 0: the logarithm of the decay is lower_bound sigmoid(exp(a_log) (alpha + dt_bias)).
  float lower_bound = 0.0f;
  TensorView state;  // f32 [num_slots, num_v_heads, head_dim_v, head_dim_k], contiguous
  TensorView out;    // [num_tokens, num_v_heads, head_dim_v], last stride 1
  RecurrentBatch batch;
  // [num_tokens or more, gated_delta_workspace_width()] of out's dtype, contiguous. Empty: none, and every
  // token is a single step.
  TensorView workspace = {};

  // Returns whether each channel of k has its own decay: dt_bias has two axes.
  bool decays_per_channel() const { return dt_bias.rank == 2; }
};

// For each token and value head, with q and k divided by sqrt(sum of squares + 1e-6), q also by
// sqrt(head_dim_k):
//   decay = exp(-exp(a_log) softplus(alpha + dt_bias)), b = beta_scale sigmoid(beta)
//   S = decay S;  delta = b (v - S k);  S = S + delta k^T;  out = S q
// A decay per channel multiplies the columns of S.
//
// On the CPU every token is a step of this recurrence, in chunks of prompts too: the state of a block of rows
// remains in the cache for all tokens of a request, and the chunk form needs twice the operations. A token
// therefore has the same bits in any division of its sequence into steps, and in any batch.
//
// GPUs do the same for requests with few new tokens, and for all of them with batch.batch_invariant, without
// a workspace, with f32 activations, with decays per channel, and for head dims that the chunk form does not
// support. Otherwise, the tokens of a request are computed in chunks of 64 positions, in which operands of
// products, also the state before the chunk, are rounded to the activations' dtype. The states are sums in
// f32 in both forms.
//
// Throws Error(kInvalidArgument) for other shapes and strides, and Error(kUnsupported) for head_dim_k above
// kMaxDeltaHeadDim.
void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream);
void check(const GatedDeltaArgs& args, const Stream& stream);
// Returns the width of GatedDeltaArgs::workspace, in elements of this dtype; 0 if the device or the dtype
// needs none.
int64_t gated_delta_workspace_width(int64_t num_v_heads, DType dtype, const Device& device);

struct GatedNormArgs {
  TensorView x;       // [num_tokens, num_heads, head_dim], last stride 1; changed in place
  TensorView weight;  // [head_dim]: f32, f16 or bf16
  float eps = 1e-6f;
  TensorView gate;  // [num_tokens, groups, width] with groups * width = num_heads * head_dim, last stride 1
  bool sigmoid = false;  // sigmoid(gate) instead of silu(gate)
};
// x = rms_norm(x) * silu(gate), per head. Throws the errors of gated_delta_rule().
void gated_norm(const GatedNormArgs& args, Stream& stream);

namespace reference {
// Same in float64, one token after another, in host memory.
void gated_delta_rule(const GatedDeltaArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
