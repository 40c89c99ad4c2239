#include "attend/model/step_cost.h"

#include <algorithm>
#include <cmath>

#include "attend/model/loadable_model.h"

namespace attend {
namespace {

void add_experts(const WeightSlot& slot, std::vector<ExpertCost>& experts) {
  const auto same = [&](const ExpertCost& cost) {
    return cost.num_experts == slot.num_experts && cost.per_token == slot.experts_per_token;
  };
  auto found = std::ranges::find_if(experts, same);
  if (found == experts.end())
    found = experts.insert(found, {.num_experts = slot.num_experts, .per_token = slot.experts_per_token});
  found->weights += slot.num_elements();
}

}  // namespace

StepCosts step_costs(const ModelSpec& spec) {
  StepCosts costs;
  const auto model = make_model(spec, {}, !spec.tie_word_embeddings);
  for (const WeightSlot& slot : model->weight_slots()) {
    if (slot.use == WeightUse::kTable) {
      const bool is_head = spec.tie_word_embeddings && slot.columns == spec.hidden_size;
      (is_head ? costs.head_weights : costs.table_weights) += slot.num_elements();
    }
    if (slot.use == WeightUse::kHead) costs.head_weights += slot.num_elements();
    if (slot.use != WeightUse::kLinear && slot.use != WeightUse::kRouter) continue;
    costs.gemm_weights += slot.num_elements() / slot.num_experts * slot.experts_per_token;
    if (slot.num_experts > 1) {
      add_experts(slot, costs.experts);
      continue;
    }
    const auto same = [&](const GemmShape& gemm) {
      return gemm.out_features == slot.rows() && gemm.in_features == slot.columns;
    };
    const auto found = std::ranges::find_if(costs.gemms, same);
    if (found != costs.gemms.end())
      ++found->count;
    else
      costs.gemms.push_back({.out_features = slot.rows(), .in_features = slot.columns, .count = 1});
  }
  for (const AttentionLayer& layer : spec.attention_layers())
    costs.operations_per_pair += 2.0 * layer.num_q_heads * (layer.head_dim_qk + layer.head_dim_v);
  return costs;
}

double untouched_weights(const StepCosts& costs, int num_tokens) {
  double untouched = 0.0;
  for (const ExpertCost& experts : costs.experts)
    untouched += static_cast<double>(experts.weights) *
                 std::pow(1.0 - 1.0 * experts.per_token / experts.num_experts, num_tokens);
  return untouched;
}

}  // namespace attend
