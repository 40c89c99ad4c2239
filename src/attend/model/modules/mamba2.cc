#include "attend/model/modules/mamba2.h"

#include <array>
#include <string>

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend {

Mamba2Module::Mamba2Module(const Mamba2Spec& spec, const NormPlacement& norms, int state_layer,
                           const ModelSpec& model, const DecoderNames& names)
    : spec_(spec),
      state_layer_(state_layer),
      hidden_size_(model.hidden_size),
      names_(names),
      norm_(make_norm(true, model)),
      gated_norm_{.weight = {}, .eps = spec.norm_eps} {
  require_norm_before(norms, model);
}

void Mamba2Module::add_slots(SlotWriter& slots) {
  slots.norm(names_.attention_norm, hidden_size_, norm_, spec_.input_scale);
  const int64_t features = spec_.features(), states = spec_.state_features(), heads = spec_.num_heads;
  slots.linear({{names_.in_proj, features, spec_.head_dim},
                {names_.in_proj, features, spec_.head_dim},
                {names_.in_proj, states, spec_.state_dim},
                {names_.in_proj, states, spec_.state_dim},
                {names_.in_proj, heads}},
               hidden_size_, spec_.in_bias, ShardAxis::kOutFeatures, in_proj_);
  slots.convolution({{names_.conv, spec_.conv_channels()}}, spec_.conv_kernel, conv_);
  if (spec_.conv_bias)
    slots.vector_in_f32(std::string(names_.conv) + ".bias", spec_.conv_channels(), conv_bias_);
  slots.vector_in_f32(names_.a_log, heads, a_log_, ShardAxis::kOutFeatures);
  slots.vector_in_f32(names_.state_d, heads, d_, ShardAxis::kOutFeatures);
  slots.vector_in_f32(names_.dt_bias, heads, dt_bias_, ShardAxis::kOutFeatures);
  if (spec_.gate_order != kernels::GateOrder::kGateOnly)
    slots.gated_norm(names_.gated_norm, features, gated_norm_.weight);
  slots.linear({{names_.out_proj, hidden_size_}}, {features, spec_.head_dim}, spec_.out_bias,
               ShardAxis::kInFeatures, out_proj_);
}

std::vector<int64_t> Mamba2Module::scratch_widths() const {
  return {projected_features(), spec_.conv_channels(), spec_.features()};
}

void Mamba2Module::scan(const TensorView& inputs, const StatePool& states,
                        const kernels::RecurrentBatch& batch, const TensorView& convolved,
                        const TensorView& out, Stream& stream) const {
  const int64_t features = spec_.features(), num_states = spec_.state_features();
  const int64_t channels = spec_.conv_channels();
  const LayerState& state = states.layer(state_layer_);
  const std::array<TensorView, 1> conv_inputs = {inputs.slice(1, 0, channels).split(1, channels)};
  kernels::causal_conv({.inputs = conv_inputs,
                        .weight = conv_,
                        .bias = conv_bias_,
                        .state = state.conv,
                        .out = convolved,
                        .batch = batch},
                       stream);
  const auto groups = [&](int64_t begin) {
    return convolved.slice(1, begin, begin + num_states).split(1, spec_.state_dim);
  };
  kernels::selective_scan({.x = convolved.slice(1, 0, features).split(1, spec_.head_dim),
                           .b = groups(features),
                           .c = groups(features + num_states),
                           .dt = inputs.slice(1, channels, kept_width()),
                           .a_log = a_log_,
                           .d = d_,
                           .dt_bias = dt_bias_,
                           .min_step = spec_.min_step,
                           .max_step = spec_.max_step,
                           .state = state.recurrent,
                           .out = out.split(1, spec_.head_dim),
                           .batch = batch},
                          stream);
}

TensorView Mamba2Module::mix(ModuleStep& step) const {
  const int64_t features = spec_.features(), states = spec_.state_features();
  const TensorView projected = step.scratch.take(projected_features());
  const TensorView convolved = step.scratch.take(spec_.conv_channels());
  const TensorView out = step.scratch.take(features);
  Stream& stream = step.context.stream;

  kernels::norm_linear(step.residual, {.norm = norm_, .linear = in_proj_, .out = projected}, step.context);
  int64_t first = 0;
  const int64_t widths[] = {features, features, states, states, spec_.num_heads};
  for (size_t i = 0; i < spec_.scales.size(); ++i) {
    kernels::scale(projected.slice(1, first, first + widths[i]), spec_.scales[i], stream);
    first += widths[i];
  }
  const TensorView inputs = projected.slice(1, features, projected_features());
  keep_inputs(inputs, step);
  scan(inputs, *step.states, step.recurrent, convolved, out, stream);
  kernels::grouped_gated_norm({.x = out,
                               .gate = projected.slice(1, 0, features),
                               .weight = gated_norm_.weight,
                               .num_groups = spec_.num_groups,
                               .eps = gated_norm_.eps,
                               .order = spec_.gate_order},
                              stream);
  kernels::scale(out, spec_.output_scale, stream);
  return out;
}

void Mamba2Module::replay(ReplayStep& step) const {
  const TensorView convolved = step.scratch.take(spec_.conv_channels());
  const TensorView out = step.scratch.take(spec_.features());
  scan(step.kept, step.states, step.batch, convolved, out, step.stream);
}

void Mamba2Module::add(const TensorView& mixed, ModuleStep& step) const {
  kernels::linear_add(mixed, out_proj_.front(), step.residual, step.context);
}

void Mamba2Module::forward(ModuleStep& step) const { add(mix(step), step); }

}  // namespace attend
