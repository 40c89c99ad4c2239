// Gated MLPs of a mixture of experts: each token is processed by its selected experts.
#pragma once

#include <span>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// Routing: selection and weights of a token's experts.

// Scores computed from the router's logits. They also rank groups of experts.
enum class RouterScores : uint8_t {
  kSoftmax,  // softmax over all experts; a group's rank is the score of its best expert
  kSigmoid,  // sigmoid of each logit; a group's rank is the sum of the scores of its two best experts
};

// Weights of a token's experts.
enum class RouterWeights : uint8_t {
  kAllExperts,     // scores; those of a softmax over all experts add up to less than 1
  kChosenExperts,  // scores divided by the sum over the selected experts
  // Two experts per token. Each has the weight that a softmax gives it over the experts whose logits are near
  // its own, without the first one for the second one (SparseMixer, arXiv 2409.12136). An expert with logit x
  // is near one with logit y >= x if (y - x) / max(|x|, y) <= near.
  kNearExperts,
};

// Groups of consecutive experts, all of the same size. A token selects only among the experts of its
// top_groups best groups.
struct RouterGroups {
  int64_t num_groups = 1, top_groups = 1;

  bool is_limited() const { return top_groups < num_groups; }
};

// Selection and weighting rule of a router.
struct RouterRule {
  RouterScores scores = RouterScores::kSoftmax;
  RouterWeights weights = RouterWeights::kChosenExperts;
  RouterGroups groups = {};
  float scale = 1.0f;  // factor of the weights
  // Added to the sum over the selected sigmoid scores to avoid division by 0 (DeepSeek-V3; LFM2-MoE: 1e-6).
  float sum_epsilon = 1e-20f;
  float near = 0.0f;  // for kNearExperts
  // moe_add() replaces logits x by cap tanh(x / cap); 0: it does not. route() ignores it.
  float logit_cap = 0.0f;
  // For benchmarks, where random weights select experts unevenly. If not 0, experts rank by spread_rank()
  // instead of by logits; weights still depend on the logits.
  uint32_t spread = 0;
};

// Limits: experts, experts per token, groups.
inline constexpr int64_t kMaxExperts = 512, kMaxExpertsPerToken = 32, kMaxExpertGroups = 32;

struct RouteArgs {
  TensorView logits;  // f32 [num_tokens, num_experts], contiguous
  RouterRule rule = {};
  // f32 [num_experts]: added to the scores for the selection of experts and, with kSigmoid, of groups, but
  // not for the weights; empty: none.
  TensorView correction = {};
  // f32 [num_experts]: factors of the weights, after they are divided by their sum; empty: none.
  TensorView expert_scales = {};
  TensorView experts;  // i32 [num_tokens, top_k], contiguous: the best one first; of equal ones the lowest
                       // expert
  TensorView weights;  // f32 [num_tokens, top_k], contiguous
};
// Selects experts. Scores and sums are float32; without a correction, a softmax ranks by logits, which have
// the same order. A
// token's experts and weights depend only on its own logits. A token has top_k distinct experts even if
// logits are NaN. Throws Error(kInvalidArgument) for invalid shapes and dtypes, for more experts than the
// limits above, for groups that do not divide the experts or have fewer than two experts with kSigmoid, and
// for top_groups with fewer than top_k experts.
void route(const RouteArgs& args, Stream& stream);
void check(const RouteArgs& args, const Stream& stream);

namespace reference {
void route(const RouteArgs& args);
}  // namespace reference

// RMSNorm, the following router and the selection of experts, in one launch if the device supports it.
struct NormRouteArgs {
  TensorView x;            // [num_tokens, hidden_size], contiguous
  TensorView norm;         // [hidden_size]: RMSNorm weight, in the dtype of x or f32
  float norm_eps = 1e-6f;  // epsilon of the RMSNorm
  Linear router;           // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {};  // as in RouteArgs
  // Gate of a shared expert: a product of the normalized row with one output, without bias; empty: none.
  Linear shared_gate = {};
  TensorView shared_gate_out = {};  // f32 [num_tokens, 1], with a gate
  TensorView normalized;            // same shape as x: input of the experts
  TensorView experts, weights;      // as in RouteArgs
  bool batch_invariant = false;     // requires the bits of rms_norm(), linear() and route()
};
// Computes normalized = rms_norm(x), and route() of its product with the router. Supports few tokens on a GPU
// with clusters. Returns false without doing anything if this needs several launches. The caller has checked
// its arguments: with check() of RouteArgs, and like linear().
bool norm_route(const NormRouteArgs& args, Stream& stream);

// Gate of a shared expert.
struct SharedGateArgs {
  TensorView x;           // [num_tokens, hidden_size]
  Linear gate;            // one output
  TensorView out;         // f32 [num_tokens, 1]
  TensorView inner = {};  // [num_tokens, intermediate_size] of the dtype of x: activations of the expert
};
// Computes out = gate(x) and, with `inner`, inner *= sigmoid(out), in one launch on a GPU. A token's bits do
// not depend on other tokens. Returns false without doing anything if this needs several launches. The caller
// has checked its arguments, like linear().
bool shared_gate(const SharedGateArgs& args, Stream& stream);

struct MoeShape {
  int64_t num_experts = 0, top_k = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // per expert
};

// Activation between the two products of an expert.
enum class ExpertActivation : uint8_t {
  kSilu,           // silu(gate) * up. The rows of gate_up are all gate rows, then all up rows.
  kClampedSwiglu,  // (up + 1) gate / (1 + e^-(alpha gate)), gate at most limit, up in [-limit, limit]. Rows
                   // of gate and up alternate (gpt-oss), unless ExpertGate::alternates is false.
  kGeluTanh,       // gelu_tanh(gate) * up (Gemma 4). Rows as with kSilu.
  kRelu2,          // max(up, 0)^2, without a gate: gate_up has the up rows only (NemotronH)
};
struct ExpertGate {
  ExpertActivation activation = ExpertActivation::kSilu;
  float limit = 0.0f, alpha = 0.0f;  // for kClampedSwiglu; above 0
  // For kClampedSwiglu; false: all gate rows, then all up rows. CPUs only.
  bool alternates = true;

  // Rows of gate and up per intermediate feature.
  int num_products() const { return activation == ExpertActivation::kRelu2 ? 1 : 2; }
};

// Weights of all experts of a layer, expert after expert: in one matrix, in one per expert, or, for gate and
// up, in two per expert. A GPU supports one matrix, with an optional input_order of [num_experts,
// in_features], shared by gate and up of an expert. Weights that are mapped from a file are not copied.
// Either all of them have biases or none has.
struct ExpertWeights {
  std::span<const Linear> gate_up;  // [num_experts * (intermediate_size of gate + of up), hidden_size]
  std::span<const Linear> down;     // [num_experts * hidden_size, intermediate_size]
};

// Expert that processes every token, with the activation of the routed experts.
struct SharedExpertArgs {
  Linear gate_up, down;  // one matrix each: [2 * intermediate (kRelu2: 1 *), hidden_size], [hidden_size, ..]
  TensorView gate_out = {};  // f32 [num_tokens, 1]: the sigmoid of it multiplies the output; empty: 1

  bool empty() const { return down.weight.empty(); }
};

struct MoeExpertsArgs {
  MoeShape shape;
  TensorView x;        // [num_tokens, hidden_size], contiguous. CPU: f32; GPU: f32, f16, bf16
  TensorView experts;  // i32 [num_tokens, top_k]: output of route(); the experts of a token are distinct (not
                       // checked on a GPU)
  TensorView weights;  // f32 [num_tokens, top_k]
  // On a GPU, plain weights have the dtype of x. With mxfp4, elements of x in bf16, and of the intermediate
  // activations, must be below 2^64 in magnitude (others yield infinities or NaN). Products of x, quantized
  // value and scale below 2^-64 may lose bits; below 2^-87 they may be zero.
  ExpertWeights linears;
  ExpertGate gate = {};
  // If true, the router weight multiplies an expert's input instead of its output (Llama 4).
  bool weights_scale_input = false;
  TensorView out;                  // same shape and dtype as x; it may be x
  bool accumulate = false;         // out += result, rounded once. GPU only.
  View<std::byte> scratch = {};    // experts_scratch_bytes() bytes on the stream's device, aligned to 64
  View<std::byte> workspace = {};  // as in LinearArgs
  // If true, a token's bits depend neither on the other tokens of the call nor on their number. Otherwise
  // they may depend on that number on a GPU.
  bool batch_invariant = false;
  bool rounds_x = false;         // CPU: as in LinearArgs, for int8
  SharedExpertArgs shared = {};  // added to the sum; empty, unless adds_shared_expert()
};
// Computes out = sum over the token's experts, in their order, of weight * (Wdown act(Wgate x, Wup x)), each
// product with its bias, summed in float32. Only weights of selected experts are read. Throws
// Error(kInvalidArgument) for invalid shapes and dtypes, and Error(kUnsupported) for weights that a GPU does
// not support.
void moe_experts(const MoeExpertsArgs& args, Stream& stream);
void check(const MoeExpertsArgs& args, const Stream& stream);

// Returns true if the kernels that moe_experts() chooses for these arguments can add args.shared in the same
// launches. The caller has checked the shapes of args.shared, like linear().
bool adds_shared_expert(const MoeExpertsArgs& args, Stream& stream);

size_t experts_scratch_bytes(const MoeShape& shape, int64_t num_tokens, DType dtype);

namespace reference {
// Ignores scratch and workspace.
void moe_experts(const MoeExpertsArgs& args);
}  // namespace reference

}  // namespace attend::kernels

#pragma GCC visibility pop
