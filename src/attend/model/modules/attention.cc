#include "attend/model/modules/attention.h"

#include "attend/kernels/fused/linear_ops.h"

namespace attend {

AttentionModule::AttentionModule(const AttentionSpec& spec, int layer_id, const ModelSpec& model,
                                 const DecoderNames& names)
    : spec_(spec),
      layer_(attention_layer(spec, layer_id)),
      hidden_size_(model.hidden_size),
      names_(names),
      norm_{.weight = {}, .eps = model.norm_eps},
      qk_norm_{.q = {}, .k = {}, .eps = model.norm_eps} {}

void AttentionModule::add_slots(SlotWriter& slots) {
  slots.norm(names_.attention_norm, hidden_size_, norm_.weight);
  slots.linear(
      {{names_.q_proj, q_features()}, {names_.k_proj, kv_features()}, {names_.v_proj, kv_features()}},
      hidden_size_, spec_.qkv_bias, ShardAxis::kOutFeatures, qkv_);
  if (spec_.qk_norm) {
    slots.norm(names_.q_norm, spec_.head_dim, qk_norm_.q);
    slots.norm(names_.k_norm, spec_.head_dim, qk_norm_.k);
  }
  slots.linear({{names_.o_proj, hidden_size_}}, q_features(), spec_.output_bias, ShardAxis::kInFeatures, o_);
}

std::vector<int64_t> AttentionModule::scratch_widths() const {
  return {q_features() + 2 * kv_features(), q_features()};
}

void AttentionModule::forward(ModuleStep& step) const {
  const TensorView qkv = step.scratch.take(q_features() + 2 * kv_features());
  const TensorView attended = step.scratch.take(q_features());
  const RopeRows& rope = step.ropes[static_cast<size_t>(spec_.rope_set)];
  const TensorView q =
      kernels::norm_qkv_rope_store(step.residual,
                                   {.norm = norm_,
                                    .qkv = qkv_,
                                    .qk_norm = qk_norm_,
                                    .rope = {.cos = rope.cos, .sin = rope.sin, .positions = rope.positions},
                                    .to = step.attention.destination(layer_, step.batch),
                                    .num_q_heads = spec_.num_q_heads,
                                    .num_kv_heads = spec_.num_kv_heads,
                                    .qkv_out = qkv},
                                   step.context);
  step.attention.forward(layer_, {.q = q, .out = attended.split(1, spec_.head_dim)}, step.batch,
                         step.context.stream);
  kernels::linear_add(attended, o_.front(), step.residual, step.context);
}

}  // namespace attend
