// Kernels of recurrent layers: causal convolution, gated delta rule and selective scan, over the states of a
// step's requests.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// States are rows of a pool: state slot i of a layer is state[i]. The slot of a request is its request row,
// and slots after the rows hold snapshots. Slot 0 is the padding slot: it is never read or written.
//
// A request whose tokens are all new (seqlen_kv = seqlen_q) starts from a state of zeros, and its slot is not
// read. The other requests start from the state of their slot, or of another slot. After the last token, the
// state is written to the request's slot. Tokens of padding requests have output 0. Slots that a step does
// not name may contain anything, also NaN.
//
// All arrays are in memory of the stream's device.
struct RecurrentBatch {
  View<const int32_t> rows;         // [num_reqs] slot of each request; 0: padding
  View<const int32_t> seqlen_kv;    // [num_reqs], including the step's tokens
  View<const int32_t> cu_seqlen_q;  // [num_reqs + 1]
  // [num_reqs] slot with the state before the step; 0: the request's own. Empty: all read their own.
  View<const int32_t> load_slots = {};
  // [num_tokens] another slot that receives the state after the token; 0: none. Empty: none for all tokens.
  View<const int32_t> save_slots = {};
  // GPUs: every token is one step of the recurrence, in prompts too, so that the bits of a token do not
  // depend on the division of its sequence into steps. Otherwise, requests with many new tokens use a chunk
  // form, which rounds differently and is faster. CPUs always use the recurrence.
  bool batch_invariant = false;

  int64_t num_reqs() const { return std::ssize(rows); }
};

// Checks the sizes of the arrays for `num_tokens` tokens and `num_slots` state slots and, in host memory,
// their contents. Throws Error(kInvalidArgument) with the array and its value.
void check(const RecurrentBatch& batch, int64_t num_tokens, int64_t num_slots, const Stream& stream);

// --- Depthwise causal convolution over the tokens of each request, with the last inputs as state ---

// Largest kernel, in taps.
inline constexpr int64_t kMaxConvKernel = 8;
// Largest number of inputs of one call.
inline constexpr size_t kMaxConvInputs = 4;

// Activations are f32 on the CPU, and all of one dtype on GPUs: f32, f16 or bf16.
struct CausalConvArgs {
  // Channels of the convolution, one input after another: each [num_tokens, groups, width], last stride 1.
  // Several groups are channels that are not adjacent in memory.
  std::span<const TensorView> inputs;
  TensorView weight;  // f32 [channels, kernel], contiguous; the last tap multiplies the token itself
  TensorView bias;    // f32 [channels]; empty: none
  bool silu = true;   // activation of the result
  // [num_slots, kernel - 1, channels] of the inputs' dtype, contiguous: the last inputs, oldest first.
  TensorView state;
  TensorView out;  // [num_tokens, channels], last stride 1
  RecurrentBatch batch;
};

// out[t][c] = act(bias[c] + sum over j of weight[c][j] * x[t - kernel + 1 + j][c]). Inputs before a request's
// first token are 0. Throws Error(kInvalidArgument) for other shapes and strides.
void causal_conv(const CausalConvArgs& args, Stream& stream);
void check(const CausalConvArgs& args, const Stream& stream);

// --- Gated delta rule with a decay per head (Gated DeltaNet, arXiv 2412.06464) or per channel of k (KDA,
// arXiv 2510.26692), and the gated norm of its output ---

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
// a workspace, with f32 activations, and for head dims that the chunk form does not support. Otherwise, the
// tokens of a request are computed in chunks of 64 positions, in which operands of products, also the state
// before the chunk, are rounded to the activations' dtype. The states are sums in f32 in both forms.
//
// Throws Error(kInvalidArgument) for other shapes and strides, and Error(kUnsupported) for head_dim_k above
// kMaxDeltaHeadDim.
void gated_delta_rule(const GatedDeltaArgs& args, Stream& stream);
void check(const GatedDeltaArgs& args, const Stream& stream);
// Returns the width of GatedDeltaArgs::workspace, in elements of this dtype; 0 if the device or the dtype
// needs none.
int64_t gated_delta_workspace_width(int64_t num_v_heads, int64_t head_dim_k, bool decays_per_channel,
                                    DType dtype, const Device& device);

struct GatedNormArgs {
  TensorView x;       // [num_tokens, num_heads, head_dim], last stride 1; changed in place
  TensorView weight;  // [head_dim]: f32, f16 or bf16
  float eps = 1e-6f;
  TensorView gate;  // [num_tokens, groups, width] with groups * width = num_heads * head_dim, last stride 1
  bool sigmoid = false;  // sigmoid(gate) instead of silu(gate)
};
// x = rms_norm(x) * silu(gate), per head. Throws the errors of gated_delta_rule().
void gated_norm(const GatedNormArgs& args, Stream& stream);
void check(const GatedNormArgs& args, const Stream& stream);

// A step of a gated delta net in which every request has at most one token: arguments of causal_conv(),
// gated_delta_rule() and gated_norm(), one after another. q, k and v of `delta` are channels of conv.out, and
// norm.x is delta.out. All have the same batch.
struct DeltaTokenArgs {
  CausalConvArgs conv;
  GatedDeltaArgs delta;
  GatedNormArgs norm;
};
// Computes norm.x and the new states in one launch, with the bits of the three functions; conv.out may not be
// written. Returns false without doing anything if the device needs several launches. Throws the errors of
// the three functions.
bool delta_token(const DeltaTokenArgs& args, Stream& stream);

// --- Selective scan with a scalar decay per head (Mamba-2, arXiv 2405.21060), and the gated norm of its
// output ---

// Activations are f32 on the CPU, and all of one dtype on GPUs: f32, f16 or bf16. Group j of b and c serves
// the heads j r to j r + r - 1, with r = num_heads / num_groups.
struct SelectiveScanArgs {
  TensorView x;                  // [num_tokens, num_heads, head_dim], last stride 1
  TensorView b, c;               // [num_tokens, num_groups, state_dim], last stride 1
  TensorView dt;                 // [num_tokens, num_heads], last stride 1: steps before their softplus
  TensorView a_log, d, dt_bias;  // f32 [num_heads], contiguous
  // Bounds of the steps after the softplus.
  float min_step = 0.0f, max_step = std::numeric_limits<float>::infinity();
  TensorView state;  // f32 [num_slots, num_heads, head_dim, state_dim], contiguous
  TensorView out;    // [num_tokens, num_heads, head_dim], last stride 1
  RecurrentBatch batch;
};

// For each token and head: step = softplus(dt + dt_bias), bounded;
//   h = exp(-exp(a_log) step) h + step x b^T;  out = h c + d x
// On the CPU and with batch_invariant, every token is a step of this recurrence, and has the same bits in any
// batch and any division into steps.
//
// Otherwise, GPUs compute requests with more than 16 new tokens in chunks of 64, if activations are f16 or
// bf16, state_dim is 64, 128 or 256, and head_dim is a multiple of 8. Products have operands of the
// activations' dtype there; states and sums are f32. Chunks start at multiples of 64 of a request's
// positions, so the division of a prompt at such positions does not change any bit.
//
// Throws Error(kInvalidArgument) for other shapes and strides.
void selective_scan(const SelectiveScanArgs& args, Stream& stream);
void check(const SelectiveScanArgs& args, const Stream& stream);

// Order of a norm and its gate.
enum class GateOrder : uint8_t {
  kGateFirst,  // rms_norm(x * silu(gate))
  kNormFirst,  // rms_norm(x) * silu(gate)
  kGateOnly,   // x * silu(gate)
};

struct GroupedGatedNormArgs {
  TensorView x;            // [num_tokens, features], last stride 1; changed in place
  TensorView gate;         // [num_tokens, features], last stride 1
  TensorView weight;       // [features]: f32, f16 or bf16; empty with kGateOnly
  int64_t num_groups = 1;  // divides the features
  float eps = 1e-6f;
  GateOrder order = GateOrder::kGateFirst;
};
// Applies norm and gate in this order, separately for each group of adjacent features. Throws the errors of
// selective_scan().
void grouped_gated_norm(const GroupedGatedNormArgs& args, Stream& stream);

namespace reference {
// Same in float64, one token after another, in host memory.
void causal_conv(const CausalConvArgs& args);
void gated_delta_rule(const GatedDeltaArgs& args);
void selective_scan(const SelectiveScanArgs& args);
}  // namespace reference

}  // namespace attend::kernels
#pragma GCC visibility pop
