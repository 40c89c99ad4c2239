#include "attend/model/modules/short_conv.h"

#include <array>
#include <string>

#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend {

ShortConvModule::ShortConvModule(const ShortConvSpec& spec, const NormPlacement& norms, int state_layer,
                                 const ModelSpec& model, const DecoderNames& names)
    : spec_(spec),
      state_layer_(state_layer),
      hidden_size_(model.hidden_size),
      names_(names),
      norm_(make_norm(true, model)) {
  require_norm_before(norms, model);
}

void ShortConvModule::add_slots(SlotWriter& slots) {
  slots.norm(names_.attention_norm, hidden_size_, norm_);
  const int64_t hidden = hidden_size_;
  slots.linear({{names_.in_proj, hidden}, {names_.in_proj, hidden}, {names_.in_proj, hidden}}, hidden,
               spec_.bias, ShardAxis::kOutFeatures, in_proj_);
  slots.convolution({{names_.conv, hidden}}, spec_.kernel, conv_);
  if (spec_.bias) slots.vector_in_f32(std::string(names_.conv) + ".bias", hidden, conv_bias_);
  slots.linear({{names_.out_proj, hidden}}, hidden, spec_.bias, ShardAxis::kInFeatures, out_proj_);
}

std::vector<int64_t> ShortConvModule::scratch_widths() const { return {3 * hidden_size_, hidden_size_}; }

void ShortConvModule::convolve(const TensorView& x, const StatePool& states,
                               const kernels::RecurrentBatch& batch, const TensorView& out,
                               Stream& stream) const {
  const std::array<TensorView, 1> inputs = {x.split(1, hidden_size_)};
  kernels::causal_conv({.inputs = inputs,
                        .weight = conv_,
                        .bias = conv_bias_,
                        .silu = false,
                        .state = states.layer(state_layer_).conv,
                        .out = out,
                        .batch = batch},
                       stream);
}

void ShortConvModule::forward(ModuleStep& step) const {
  const TensorView projected = step.scratch.take(3 * hidden_size_);
  const TensorView out = step.scratch.take(hidden_size_);
  Stream& stream = step.context.stream;
  kernels::norm_linear(step.residual, {.norm = norm_, .linear = in_proj_, .out = projected}, step.context);
  const auto part = [&](int64_t index) {
    return projected.slice(1, index * hidden_size_, (index + 1) * hidden_size_);
  };
  const TensorView x = part(2);
  kernels::multiply(part(0), x, stream);
  keep_inputs(x, step);
  convolve(x, *step.states, step.recurrent, out, stream);
  kernels::multiply(part(1), out, stream);
  kernels::linear_add(out, out_proj_.front(), step.residual, step.context);
}

void ShortConvModule::replay(ReplayStep& step) const {
  convolve(step.kept, step.states, step.batch, step.scratch.take(hidden_size_), step.stream);
}

}  // namespace attend
