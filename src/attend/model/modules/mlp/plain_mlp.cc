#include "attend/model/modules/mlp/plain_mlp.h"

#include "attend/kernels/fused/operations.h"

namespace attend {

PlainMlpModule::PlainMlpModule(const PlainMlpSpec& spec, const NormPlacement& norms, const ModelSpec& model,
                               const DecoderNames& names)
    : spec_(spec),
      hidden_size_(model.hidden_size),
      names_(names),
      norms_(norms),
      norm_(make_norm(norms.before, model)),
      post_norm_(make_post_norm(norms.after || norms.post_ln, model)) {}

void PlainMlpModule::add_slots(SlotWriter& slots) {
  const int64_t intermediate = spec_.intermediate_size;
  if (norms_.before) {
    const bool separate = norms_.parallel && !names_.parallel_mlp_norm.empty();
    slots.norm(norms_.shared ? names_.attention_norm
               : separate    ? names_.parallel_mlp_norm
                             : names_.mlp_norm,
               hidden_size_, norm_);
  }
  slots.linear({{names_.up_proj, intermediate}}, hidden_size_, spec_.bias, ShardAxis::kOutFeatures, up_);
  slots.linear({{names_.down_proj, hidden_size_}}, intermediate, spec_.bias, ShardAxis::kInFeatures, down_);
  if (spec_.activation == kernels::PlainActivation::kXielu) {
    slots.vector_in_f32(names_.xielu_alpha_p, 1, alphas_.positive);
    slots.vector_in_f32(names_.xielu_alpha_n, 1, alphas_.negative);
  }
  if (norms_.after || norms_.post_ln) slots.norm(names_.mlp_post_norm, hidden_size_, post_norm_);
}

std::vector<int64_t> PlainMlpModule::scratch_widths() const { return {spec_.intermediate_size}; }

void PlainMlpModule::forward(ModuleStep& step) const {
  const TensorView x = step.scratch.take(spec_.intermediate_size);
  kernels::norm_activated_linear(
      step.residual,
      {.norm = norm_, .linear = up_, .activation = spec_.activation, .alphas = alphas_, .out = x},
      step.context);
  if (norms_.post_ln)
    kernels::linear_add_norm(x, down_.front(), step.residual, post_norm_, step.context);
  else
    kernels::linear_add(x, down_.front(), step.residual, step.context, post_norm_);
}

}  // namespace attend
