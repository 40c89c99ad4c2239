// Mixture-of-experts layer of a model.
#pragma once

#include "attend/kernels/fused/residual.h"
#include "attend/kernels/moe/experts.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// Expert that processes every token. If there is none, gate_up is empty.
struct SharedExpert {
  LinearParts gate_up = {};  // out_features: gate, then up
  Linear down = {};
  TensorView gate_up_out = {};  // [num_tokens, 2 * intermediate_size]: scratch
  TensorView inner = {};        // [num_tokens, intermediate_size]: scratch
};

struct MoeAddArgs {
  Norm norm;
  Linear router;  // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {};  // as in RouteArgs
  MoeShape shape;
  ExpertWeights experts;
  ExpertGate gate = {};              // for the routed experts; the shared one has SiLU
  bool weights_scale_input = false;  // as in MoeExpertsArgs
  SharedExpert shared = {};
  TensorView scratch;  // [num_tokens, moe_scratch_width()] of the residual's dtype, contiguous, aligned to 64
};
// residual += sum over each token's experts of weight * (Wdown act(Wgate y, Wup y)) with y = norm(residual),
// plus the shared expert without a weight. The router's logits, the weights and the sum are float32
// (experts.h). Throws the errors of those functions.
void moe_add(Residual& residual, const MoeAddArgs& args, const OpContext& context);

// Returns the features per token that moe_add() needs as scratch, for any dtype and number of tokens.
int64_t moe_scratch_width(const MoeShape& shape);

}  // namespace attend::kernels
#pragma GCC visibility pop
