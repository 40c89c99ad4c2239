#include "attend/model/modules/mlp/gated_mlp.h"

#include "attend/kernels/fused/operations.h"

namespace attend {

GatedMlpModule::GatedMlpModule(const GatedMlpSpec& spec, const NormPlacement& norms, const ModelSpec& model,
                               const DecoderNames& names, Device device)
    : spec_(spec),
      hidden_size_(model.hidden_size),
      names_(names),
      norms_(norms),
      gates_in_place_(device.type == DeviceType::kCpu),
      norm_(make_norm(norms.before, model)),
      post_norm_(make_post_norm(norms.after, model)) {}

void GatedMlpModule::add_slots(SlotWriter& slots) {
  const int64_t intermediate = spec_.intermediate_size;
  if (norms_.before) slots.norm(norms_.shared ? names_.attention_norm : names_.mlp_norm, hidden_size_, norm_);
  const bool fused = spec_.fused_gate_up;
  slots.linear({{fused ? names_.gate_up_proj : names_.gate_proj, intermediate},
                {fused ? names_.gate_up_proj : names_.up_proj, intermediate}},
               hidden_size_, spec_.bias, ShardAxis::kOutFeatures, gate_up_);
  slots.linear({{names_.down_proj, hidden_size_}}, intermediate, spec_.bias, ShardAxis::kInFeatures, down_);
  if (norms_.after) slots.norm(names_.mlp_post_norm, hidden_size_, post_norm_);
}

std::vector<int64_t> GatedMlpModule::scratch_widths() const {
  const int64_t intermediate = spec_.intermediate_size;
  if (gates_in_place_) return {2 * intermediate};
  return {2 * intermediate, intermediate};
}

void GatedMlpModule::forward(ModuleStep& step) const {
  const TensorView gate_up = step.scratch.take(2 * int64_t{spec_.intermediate_size});
  const TensorView x = gates_in_place_ ? gate_up.slice(1, 0, spec_.intermediate_size)
                                       : step.scratch.take(spec_.intermediate_size);
  kernels::norm_gated_linear(step.residual,
                             {.norm = norm_,
                              .gate_up = gate_up_,
                              .activation = spec_.activation,
                              .gate_scale = spec_.gate_scale,
                              .up_scale = spec_.up_scale,
                              .gate_up_out = gate_up,
                              .out = x},
                             step.context);
  kernels::linear_add(x, down_.front(), step.residual, step.context, post_norm_);
}

}  // namespace attend
