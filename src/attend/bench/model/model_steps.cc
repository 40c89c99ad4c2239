#include "attend/bench/model/model_steps.h"

#include <random>
#include <set>

#include "attend/base/error.h"
#include "attend/kernels/moe/experts.h"
#include "attend/model/step_cost.h"

namespace attend::bench {
namespace {

// Bytes per element of a plain weight in its memory.
double weight_element_bytes(const Engine& engine) {
  const bool on_gpu = engine.info().target().device.type == DeviceType::kCuda;
  return static_cast<double>(size_of(on_gpu ? engine.info().target().dtype : engine.model_spec().dtype));
}

}  // namespace

std::vector<int32_t> random_prompt(int num_tokens, int vocab_size) {
  std::mt19937 random(1);
  std::vector<int32_t> ids(static_cast<size_t>(num_tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

void require_token(const RequestOutput& output) {
  if (output.finish_reason == FinishReason::kError)
    fail(ErrorCode::kCorruptFile, "model: ", output.message, ": no token to time");
}

double multiplied_bytes(const Engine& engine) {
  const StepCosts costs = step_costs(engine.model_spec());
  return static_cast<double>(engine.info().target().weight_bytes) -
         weight_element_bytes(engine) * static_cast<double>(costs.table_weights);
}

std::optional<double> touched_experts(const ModelSpec& spec, int batch_size) {
  int num_layers = 0, num_touched = 0;
  for (const LayerSpec& layer : spec.layers) {
    const MoeMlpSpec* const moe = find_moe(layer.mlp);
    if (moe == nullptr || moe->rule.spread == 0) continue;
    const Tensor logits = Tensor::zeros({batch_size, moe->num_experts}, DType::kF32),
                 experts = Tensor::empty({batch_size, moe->top_k}, DType::kI32),
                 weights = Tensor::empty({batch_size, moe->top_k}, DType::kF32);
    Stream host;
    kernels::route({.logits = logits, .rule = moe->rule, .experts = experts, .weights = weights}, host);
    const auto chosen = experts.span<int32_t>();
    num_touched += static_cast<int>(std::set<int32_t>(chosen.begin(), chosen.end()).size());
    ++num_layers;
  }
  if (num_layers == 0) return {};
  return 1.0 * num_touched / num_layers;
}

double decode_bytes(const Engine& engine, int batch_size, int context) {
  const StepCosts costs = step_costs(engine.model_spec());
  double weights = 0.0, untouched = untouched_weights(costs, batch_size);
  for (const ExpertCost& experts : costs.experts) weights += static_cast<double>(experts.weights);
  if (const auto touched = touched_experts(engine.model_spec(), batch_size)) {
    untouched = 0.0;
    for (const ExpertCost& experts : costs.experts)
      untouched += static_cast<double>(experts.weights) * (1.0 - *touched / experts.num_experts);
  }
  const double untouched_share = weights > 0.0 ? untouched / weights : 0.0;
  return multiplied_bytes(engine) -
         static_cast<double>(engine.info().target().expert_bytes) * untouched_share +
         static_cast<double>(engine.info().target().kv_token_bytes) * batch_size * context +
         2.0 * static_cast<double>(engine.info().target().state_bytes) * batch_size;
}

double prompt_operations(const Engine& engine, int depth, int num_tokens) {
  const StepCosts costs = step_costs(engine.model_spec());
  const double pairs = num_tokens * (depth + (num_tokens + 1) / 2.0);
  return 2.0 * (static_cast<double>(costs.gemm_weights) * num_tokens +
                static_cast<double>(costs.head_weights)) +
         costs.operations_per_pair * pairs;
}

}  // namespace attend::bench
