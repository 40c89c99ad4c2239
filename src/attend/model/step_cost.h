// Minimum cost of a model's steps: numbers of weights and operations, computed from its spec.
#pragma once

#include <vector>

#include "attend/model/config/model_spec.h"

namespace attend {

// Shape of a GEMM, and number of layers with it.
struct GemmShape {
  int64_t out_features = 0, in_features = 0;
  int count = 0;
};

// Weights of experts.
struct ExpertCost {
  int num_experts = 0, per_token = 0;
  int64_t weights = 0;  // elements of all experts in all layers
};

struct StepCosts {
  std::vector<GemmShape> gemms;  // for every token of a step
  std::vector<ExpertCost> experts;
  int64_t gemm_weights = 0;        // elements per token: those of gemms, and of the token's experts
  int64_t head_weights = 0;        // elements of lm_head, for tokens with requested logits
  int64_t table_weights = 0;       // elements of an embedding that is not also the head
  double operations_per_pair = 0;  // multiplications and additions per query and key, for all layers
};
StepCosts step_costs(const ModelSpec& spec);

// Mean number of elements of experts that no token uses, if tokens choose uniformly and independently: the
// elements of E (1 - k / E)^num_tokens of E experts.
double untouched_weights(const StepCosts& costs, int num_tokens);

}  // namespace attend
