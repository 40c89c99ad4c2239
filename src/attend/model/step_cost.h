// What the steps of a model can not do without: counts of weights and operations, from its spec alone.
#pragma once

#include <vector>

#include "attend/model/config/model_spec.h"

namespace attend {

// A dense product of a layer, and how many of the model have its shape.
struct GemmShape {
  int64_t out_features = 0, in_features = 0;
  int count = 0;
};

// The weights of experts, of which each token meets some.
struct ExpertCost {
  int num_experts = 0, per_token = 0;
  int64_t weights = 0;  // elements of all of them, in all layers
};

struct StepCosts {
  std::vector<GemmShape> gemms;  // that every token of a step meets
  std::vector<ExpertCost> experts;
  int64_t gemm_weights = 0;        // elements that a token meets: of all of gemms, and of its experts
  int64_t head_weights = 0;        // of the lm_head, which meets the tokens whose logits are wanted
  int64_t table_weights = 0;       // of an embedding that nothing multiplies
  double operations_per_pair = 0;  // multiplications and additions of a query and a key, all layers together
};
StepCosts step_costs(const ModelSpec& spec);

// Elements of experts that none of so many tokens meets, when tokens choose evenly and apart: of E experts
// E (1 - k / E)^num_tokens in the mean.
double untouched_weights(const StepCosts& costs, int num_tokens);

}  // namespace attend
