// What the steps of a model can not do without: counts of weights and operations, from its spec alone.
#pragma once

#include <vector>

#include "attend/model/model_spec.h"

namespace attend {

// A dense product of a layer, and how many of the model have its shape.
struct GemmShape {
  int64_t out_features = 0, in_features = 0;
  int count = 0;
};

struct StepCosts {
  std::vector<GemmShape> gemms;    // that every token of a step meets
  int64_t gemm_weights = 0;        // elements of all of them
  int64_t head_weights = 0;        // of the lm_head, which meets the tokens whose logits are wanted
  int64_t table_weights = 0;       // of an embedding that nothing multiplies
  double operations_per_pair = 0;  // multiplications and additions of a query and a key, all layers together
};
StepCosts step_costs(const ModelSpec& spec);

}  // namespace attend
