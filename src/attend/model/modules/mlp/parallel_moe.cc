#include "attend/model/modules/mlp/parallel_moe.h"

#include "attend/base/error.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend {

ParallelMoeModule::ParallelMoeModule(const ParallelMoeSpec& spec, const NormPlacement& norms,
                                     const ModelSpec& model, const DecoderNames& names)
    : spec_(spec.dense),
      hidden_size_(model.hidden_size),
      names_(names),
      moe_(spec.moe, {.before = true}, model, names, names.moe_norm),
      norm_{.weight = {}, .eps = model.norm_eps},
      dense_post_norm_(norm_),
      moe_post_norm_(norm_),
      post_norm_(norm_) {
  if (!norms.before || !norms.after || norms.post_ln)
    fail(ErrorCode::kUnsupported, model.architecture,
         ": attend supports experts in parallel with an MLP only with norms before and after them");
}

void ParallelMoeModule::add_slots(SlotWriter& slots) {
  const int64_t intermediate = spec_.intermediate_size;
  slots.norm(names_.mlp_norm, hidden_size_, norm_.weight);
  slots.linear({{names_.gate_proj, intermediate}, {names_.up_proj, intermediate}}, hidden_size_, spec_.bias,
               ShardAxis::kOutFeatures, gate_up_);
  slots.linear({{names_.down_proj, hidden_size_}}, intermediate, spec_.bias, ShardAxis::kInFeatures, down_);
  slots.norm(names_.dense_post_norm, hidden_size_, dense_post_norm_.weight);
  moe_.add_slots(slots);
  slots.norm(names_.moe_post_norm, hidden_size_, moe_post_norm_.weight);
  slots.norm(names_.mlp_post_norm, hidden_size_, post_norm_.weight);
}

std::vector<int64_t> ParallelMoeModule::scratch_widths() const {
  std::vector<int64_t> widths = moe_.scratch_widths();
  const int64_t intermediate = spec_.intermediate_size;
  widths.insert(widths.end(), {2 * intermediate, intermediate, hidden_size_, hidden_size_});
  return widths;
}

void ParallelMoeModule::forward(ModuleStep& step) const {
  const TensorView dense = step.scratch.take(hidden_size_), experts = step.scratch.take(hidden_size_);
  const TensorView inner = step.scratch.take(spec_.intermediate_size);
  kernels::norm_gated_linear(step.residual,
                             {.norm = norm_,
                              .gate_up = gate_up_,
                              .activation = spec_.activation,
                              .gate_scale = spec_.gate_scale,
                              .up_scale = spec_.up_scale,
                              .gate_up_out = step.scratch.take(2 * int64_t{spec_.intermediate_size}),
                              .out = inner},
                             step.context);
  kernels::linear(inner, down_.front(), dense, step.context);
  Stream& stream = step.context.stream;
  kernels::rms_norm(dense, dense_post_norm_.weight, dense_post_norm_.eps, dense, stream);
  moe_.compute(step, experts);
  kernels::rms_norm_add(experts, moe_post_norm_.weight, moe_post_norm_.eps, dense, stream);
  kernels::norm_add(dense, post_norm_, step.residual, step.context);
}

}  // namespace attend
