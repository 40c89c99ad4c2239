// The gated MLPs of a mixture of experts: every token by those that it chose.
#pragma once

#include <span>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)

namespace attend::kernels {

// Which experts a token of a mixture of experts goes to, and how much each of them counts.

// What a router's logits become. Groups of experts are ranked by it too.
enum class RouterScores : uint8_t {
  kSoftmax,  // of all experts. A group counts as much as its best expert
  kSigmoid,  // of each expert alone. A group counts as much as its two best experts together
};

// What the weights of a token's experts are.
enum class RouterWeights : uint8_t {
  kAllExperts,     // their scores: of a softmax the chosen experts' add up to less than 1
  kChosenExperts,  // their scores, divided by the sum over the chosen
};

// Experts stand in groups of the same size, one after another; a token chooses among those of its best
// groups.
struct RouterGroups {
  int64_t num_groups = 1, top_groups = 1;

  bool limit() const { return top_groups < num_groups; }
};

// How a router chooses and weighs, beside its logits.
struct RouterRule {
  RouterScores scores = RouterScores::kSoftmax;
  RouterWeights weights_of = RouterWeights::kChosenExperts;
  RouterGroups groups = {};
  float scale = 1.0f;  // of the weights
  // For benches, whose random weights choose unevenly. Not 0: experts rank by spread_rank(), whatever the
  // logits say, which still give the weights.
  uint32_t spread = 0;
};

// What the sum over the chosen sigmoid scores is increased by, lest it is 0 (as DeepSeek-V3 does).
inline constexpr float kSmallestSumOfSigmoids = 1e-20f;

// Experts that a token may choose among, and choose.
inline constexpr int64_t kMaxExperts = 512, kMaxExpertsPerToken = 32, kMaxExpertGroups = 32;

struct RouteArgs {
  TensorView logits;  // f32 [num_tokens, num_experts], contiguous
  RouterRule rule = {};
  // f32 [num_experts], of kSigmoid: added to the scores for the choice of groups and experts, not for the
  // weights; empty: nothing
  TensorView correction = {};
  TensorView experts;  // i32 [num_tokens, top_k], contiguous: the best one first; of equal ones the lowest
                       // expert
  TensorView weights;  // f32 [num_tokens, top_k], contiguous
};
// Scores and sums in float32; a softmax chooses by its logits, which rank alike. A token's experts and
// weights depend on its own logits alone. They are top_k different experts also where logits are not numbers.
// Throws Error(kInvalidArgument) for shapes and dtypes, for more experts than the limits above, for groups
// that do not divide the experts, that have fewer than two where two count, or of which too few are chosen
// for top_k experts.
void route(const RouteArgs& args, Stream& stream);
void check(const RouteArgs& args, const Stream& stream);

namespace reference {
void route(const RouteArgs& args);
}  // namespace reference

// A norm, the router behind it and the choice of experts, in one launch where a device can.

struct NormRouteArgs {
  TensorView x;            // [num_tokens, hidden_size], contiguous
  TensorView norm;         // [hidden_size]: RMSNorm's weight
  float norm_eps = 1e-6f;  // its epsilon
  Linear router;           // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {};    // as of RouteArgs
  TensorView normalized;         // as x: what experts read
  TensorView experts, weights;   // as of RouteArgs
  bool batch_invariant = false;  // bits of rms_norm(), linear() and route() are wanted
};
// normalized = rms_norm(x), and route() of its product with the router. False where that takes several
// launches: then nothing is done. Few tokens on a GPU with clusters. The caller has checked its arguments: by
// check() of RouteArgs and as linear() would.
bool norm_route(const NormRouteArgs& args, Stream& stream);

struct MoeShape {
  int64_t num_experts = 0, top_k = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of one expert
};

// What stands between the two products of an expert.
enum class ExpertActivation : uint8_t {
  kSilu,           // silu(gate) * up. Of gate_up the rows of gate come first, then those of up.
  kClampedSwiglu,  // (up + 1) gate / (1 + e^-(alpha gate)), gate at most limit, up within limit of 0. Rows of
                   // gate and up alternate (gpt-oss).
};
struct ExpertGate {
  ExpertActivation activation = ExpertActivation::kSilu;
  float limit = 0.0f, alpha = 0.0f;  // of kClampedSwiglu; above 0
};

// The weights of all experts of a layer, expert after expert: in one matrix, in one for each expert, or, of
// gate and up, in one for each of the two of each expert. A GPU takes one matrix, whose input_order, if it
// has one, is [num_experts, in_features]: gate and up of an expert have the same. Weights that are mapped
// from a file stay where they are. All of them have biases or none has.
struct ExpertWeights {
  std::span<const Linear> gate_up;  // [num_experts * (gate's + up's intermediate_size), hidden_size]
  std::span<const Linear> down;     // [num_experts * hidden_size, intermediate_size]
};

struct MoeExpertsArgs {
  MoeShape shape;
  TensorView x;  // [num_tokens, hidden_size], contiguous. CPU: f32; GPU: f32, f16, bf16
  TensorView
      experts;  // i32 [num_tokens, top_k]: as route() leaves them, each a token's once (not checked on a GPU)
  TensorView weights;  // f32 [num_tokens, top_k]
  // On a GPU plain weights are of the dtype of x. Beside mxfp4, elements of x in bf16, and of what lies
  // between the products, are below 2^64 (others give infinities or NaN); products of x, code and scale below
  // 2^-64 may lose bits, below 2^-87 all of them.
  ExpertWeights linears;
  ExpertGate gate = {};
  // The weight multiplies what an expert reads in place of what it gives (Llama 4).
  bool weights_scale_input = false;
  TensorView out;                  // as x; on a CPU it may be x
  bool accumulate = false;         // out += what is computed, rounded once. GPU only.
  View<std::byte> scratch = {};    // experts_scratch_bytes(), aligned to 64, of the stream's device
  View<std::byte> workspace = {};  // as of linear()
  // A token's bits do not depend on the other tokens of the call, nor on their number. Elsewhere they may on
  // a GPU depend on that number.
  bool batch_invariant = false;
};
// out = sum over the token's experts, in their order, of weight * (Wdown act(Wgate x, Wup x)), each product
// with its bias, summed in float32. Only weights of experts that a token chose are read. Throws
// Error(kInvalidArgument) for shapes and dtypes, Error(kUnsupported) for weights that a GPU does not take.
void moe_experts(const MoeExpertsArgs& args, Stream& stream);
void check(const MoeExpertsArgs& args, const Stream& stream);

size_t experts_scratch_bytes(const MoeShape& shape, int64_t num_tokens, DType dtype);

namespace reference {
// Scratch and workspace are not used.
void moe_experts(const MoeExpertsArgs& args);
}  // namespace reference

}  // namespace attend::kernels

#pragma GCC visibility pop
