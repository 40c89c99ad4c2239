#include "attend/model/modules/mlp/moe_mlp.h"

#include <cmath>

#include "attend/base/error.h"

namespace attend {

MoeMlpModule::MoeMlpModule(const MoeMlpSpec& spec, const NormPlacement& norms, const ModelSpec& model,
                           const DecoderNames& names, std::string_view norm_name)
    : spec_(spec),
      shape_{.num_experts = spec.num_experts,
             .top_k = spec.top_k,
             .hidden_size = spec.latent_size > 0 ? spec.latent_size : model.hidden_size,
             .intermediate_size = spec.intermediate_size},
      hidden_size_(model.hidden_size),
      names_(names),
      norm_name_(norm_name),
      norms_(norms),
      norm_(make_norm(norms.before, model)),
      router_norm_{.eps = model.norm_eps} {
  if (norms.after)
    fail(ErrorCode::kUnsupported, model.architecture, ": attend does not support a norm after experts");
}

void MoeMlpModule::add_slots(SlotWriter& slots) {
  const int64_t hidden = hidden_size_, intermediate = shape_.intermediate_size;
  const int64_t expert_size = shape_.hidden_size;
  const bool gated = spec_.gate.num_products() == 2;
  const SlotWriter::Experts experts{names_.experts, spec_.num_experts, spec_.top_k};
  if (norms_.before) slots.norm(norms_.shared ? names_.attention_norm : norm_name_, hidden, norm_);
  slots.linear({{names_.router, shape_.num_experts}}, hidden, spec_.router_bias, ShardAxis::kNone, router_,
               /*dequantize_on_load=*/false, WeightUse::kRouter);
  if (spec_.router_norm) {
    const auto scale = 1.0 / std::sqrt(static_cast<double>(hidden));
    slots.factors(names_.router_norm, hidden, router_norm_.weight, static_cast<float>(scale));
    slots.factors(names_.expert_scales, shape_.num_experts, expert_scales_);
  }
  if (spec_.correction)
    slots.vector_in_f32(names_.router_correction, shape_.num_experts, correction_, ShardAxis::kNone,
                        spec_.correction_row ? StoredLayout::kOneRow : StoredLayout::kRows);
  const SlotWriter::Part gate{names_.expert_gate_proj, intermediate}, up{names_.expert_up_proj, intermediate},
      down{names_.expert_down_proj, expert_size};
  if (spec_.latent_size > 0) {
    slots.linear({{names_.latent_in_proj, expert_size}}, hidden, /*bias=*/false, ShardAxis::kNone,
                 latent_in_);
    slots.linear({{names_.latent_out_proj, hidden}}, expert_size, /*bias=*/false, ShardAxis::kNone,
                 latent_out_);
  }
  if (spec_.fused_experts) {
    const SlotWriter::Part half{names_.fused_gate_up_proj, intermediate};
    const StoredLayout layout =
        spec_.fused_expert_rows ? StoredLayout::kExpertRows : StoredLayout::kExpertColumns;
    // Rows of gate and up alternate, so ranks divide pairs of rows.
    const SlotWriter::Part pairs{names_.fused_gate_up_proj, 2 * intermediate, 2};
    if (spec_.gate.activation == kernels::ExpertActivation::kClampedSwiglu)
      slots.fused_experts(experts, {pairs}, {gate, up}, hidden, spec_.expert_bias, ShardAxis::kOutFeatures,
                          gate_up_);
    else
      slots.fused_experts(experts, {half, half}, {gate, up}, hidden, spec_.expert_bias,
                          ShardAxis::kOutFeatures, gate_up_, layout);
    slots.fused_experts(experts, {{names_.fused_down_proj, hidden}}, {down}, intermediate, spec_.expert_bias,
                        ShardAxis::kInFeatures, down_, layout);
  } else {
    if (gated)
      slots.experts(experts, {gate, up}, expert_size, ShardAxis::kOutFeatures, gate_up_);
    else
      slots.experts(experts, {up}, expert_size, ShardAxis::kOutFeatures, gate_up_);
    slots.experts(experts, {down}, intermediate, ShardAxis::kInFeatures, down_);
  }
  if (const int64_t shared = spec_.shared_intermediate_size; shared > 0) {
    const SlotWriter::Part shared_gate{names_.shared_gate_proj, shared},
        shared_up{names_.shared_up_proj, shared};
    if (gated)
      slots.linear({shared_gate, shared_up}, hidden, /*bias=*/false, ShardAxis::kOutFeatures,
                   shared_gate_up_);
    else
      slots.linear({shared_up}, hidden, /*bias=*/false, ShardAxis::kOutFeatures, shared_gate_up_);
    slots.linear({{names_.shared_down_proj, hidden}}, shared, /*bias=*/false, ShardAxis::kInFeatures,
                 shared_down_);
    if (spec_.shared_gate)
      slots.linear({{names_.shared_gate, 1}}, hidden, /*bias=*/false, ShardAxis::kNone, shared_gate_,
                   /*dequantize_on_load=*/false, WeightUse::kRouter);
  }
}

std::vector<int64_t> MoeMlpModule::scratch_widths() const {
  const int64_t shared = spec_.shared_intermediate_size;
  // The shared expert's gate is float32.
  return {kernels::moe_scratch_width(shape_), 2 * shared, shared, spec_.shared_gate ? 2 : 0,
          spec_.latent_size};
}

void MoeMlpModule::compute(ModuleStep& step, const TensorView& out) const {
  const TensorView scratch = step.scratch.take(kernels::moe_scratch_width(shape_));
  kernels::SharedExpert shared;
  if (const int64_t size = spec_.shared_intermediate_size; size > 0)
    shared = {.gate_up = shared_gate_up_,
              .down = shared_down_.front(),
              .gate_up_out = step.scratch.take(2 * size),
              .inner = step.scratch.take(size),
              .scale = spec_.shared_scale};
  if (spec_.shared_gate) {
    shared.gate = shared_gate_.front();
    shared.gate_out = step.scratch.take_wide(DType::kF32, 1);
  }
  kernels::ExpertLatents latents;
  if (const int64_t size = spec_.latent_size; size > 0)
    latents = {.in = latent_in_.front(), .out = latent_out_.front(), .rows = step.scratch.take(size)};
  // Files with one tensor per expert have gate and up separately.
  kernels::ExpertGate gate = spec_.gate;
  gate.alternates = std::ssize(gate_up_) <= shape_.num_experts;
  kernels::moe_add(step.residual,
                   {.norm = norm_,
                    .router_norm = router_norm_,
                    .router = router_.front(),
                    .rule = spec_.rule,
                    .correction = correction_,
                    .expert_scales = expert_scales_,
                    .shape = shape_,
                    .experts = {.gate_up = gate_up_, .down = down_},
                    .latents = latents,
                    .gate = gate,
                    .weights_scale_input = spec_.weights_scale_input,
                    .shared = shared,
                    .out = out,
                    .scratch = scratch},
                   step.context);
}

}  // namespace attend
