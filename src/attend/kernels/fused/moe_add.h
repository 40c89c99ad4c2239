// A mixture of experts as a model speaks of it.
#pragma once

#include "attend/kernels/fused/residual.h"
#include "attend/kernels/moe/experts.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// The expert that every token meets. Without one gate_up is empty.
struct SharedExpert {
  LinearParts gate_up = {};  // out_features: gate's, then up's
  Linear down = {};
  TensorView gate_up_out = {};  // [num_tokens, 2 * intermediate_size]: scratch
  TensorView inner = {};        // [num_tokens, intermediate_size]: scratch
};

struct MoeAddArgs {
  Norm norm;
  Linear router;  // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {};  // as of RouteArgs
  MoeShape shape;
  ExpertWeights experts;
  ExpertGate gate = {};              // of the routed experts; the shared one has SiLU
  bool weights_scale_input = false;  // as of MoeExpertsArgs
  SharedExpert shared = {};
  TensorView scratch;  // [num_tokens, moe_scratch_width()] of the residual's dtype, contiguous, aligned to 64
};
// residual += sum over each token's experts of weight * (Wdown act(Wgate y, Wup y)), y = norm(residual), and
// of the shared expert without a weight. The router's logits are float32, and so are the weights and the sum
// (experts.h). Throws what those throw. The sum over experts that several ranks divide would be all-reduced
// here; today the experts are whole.
void moe_add(Residual& residual, const MoeAddArgs& args, const OpContext& context);

// Features of a token that moe_add() takes as scratch, whatever the dtype and the number of tokens.
int64_t moe_scratch_width(const MoeShape& shape);

}  // namespace attend::kernels
#pragma GCC visibility pop
