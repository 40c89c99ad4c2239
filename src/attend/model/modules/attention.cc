#include "attend/model/modules/attention.h"

#include "attend/kernels/fused/operations.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend {

AttentionModule::AttentionModule(const AttentionSpec& spec, const NormPlacement& norms, int layer_id,
                                 const ModelSpec& model, const DecoderNames& names)
    : spec_(spec),
      layer_(attention_layer(spec, layer_id)),
      hidden_size_(model.hidden_size),
      names_(names),
      norms_(norms),
      norm_{.weight = {}, .eps = model.norm_eps},
      post_norm_(norm_),
      stream_norm_{.weight = {}, .bias = {}, .eps = model.norm_eps},
      qk_norm_{
          .q = {}, .k = {}, .eps = model.norm_eps, .after_rope = spec.qk_norm == QkNormSpan::kHeadAfterRope} {
}

void AttentionModule::add_slots(SlotWriter& slots) {
  if (norms_.before && spec_.input_norm && spec_.joined_size == 0)
    slots.norm(names_.attention_norm, hidden_size_, norm_.weight, spec_.input_scale);
  const int64_t head = spec_.head_dim;
  const bool fused = spec_.fused_qkv;
  const SlotWriter::Part q{fused ? names_.qkv_proj : names_.q_proj, spec_.num_q_heads * q_width(), q_width()},
      k{fused ? names_.qkv_proj : names_.k_proj, kv_features(), head, /*is_replicated=*/true},
      v{fused ? names_.qkv_proj : names_.v_proj, kv_features(), head, /*is_replicated=*/true};
  const auto projection = [&](std::initializer_list<SlotWriter::Part> parts) {
    slots.linear(parts, spec_.joined_size > 0 ? spec_.joined_size : hidden_size_, spec_.qkv_bias,
                 ShardAxis::kOutFeatures, qkv_);
  };
  if (!has_kv())
    projection({q});
  else if (spec_.k_as_v)
    projection({q, k});
  else
    projection({q, k, v});
  if (spec_.qk_norm == QkNormSpan::kHead || spec_.qk_norm == QkNormSpan::kToken) {
    const bool each = spec_.qk_norm == QkNormSpan::kHead;
    slots.norm(names_.q_norm, each ? spec_.head_dim : q_features(), qk_norm_.q);
    if (has_kv()) slots.norm(names_.k_norm, each ? spec_.head_dim : kv_features(), qk_norm_.k);
  }
  if (spec_.sinks) slots.vector_in_f32(names_.sinks, spec_.num_q_heads, sinks_, ShardAxis::kOutFeatures);
  slots.linear({{names_.o_proj, hidden_size_}}, {q_features(), head}, spec_.output_bias,
               ShardAxis::kInFeatures, o_);
  if (norms_.after) slots.norm(names_.attention_post_norm, hidden_size_, post_norm_.weight);
  if (norms_.post_ln) slots.layer_norm(names_.attention_post_norm, hidden_size_, stream_norm_);
}

std::vector<int64_t> AttentionModule::scratch_widths() const { return {qkv_features(), q_features()}; }

TensorView AttentionModule::project(ModuleStep& step, const TensorView& qkv) const {
  const RopeRows rows = spec_.rope_set < 0 ? RopeRows() : step.ropes[static_cast<size_t>(spec_.rope_set)];
  const kernels::RopeAngles rope{
      .cos = rows.cos, .sin = rows.sin, .positions = rows.positions, .interleaved = rows.interleaved};
  if (!has_kv())
    return kernels::norm_q_rope(step.residual,
                                {.norm = norm_,
                                 .q = qkv_,
                                 .q_norm = qk_norm_.q,
                                 .eps = qk_norm_.eps,
                                 .rope = rope,
                                 .head_dim = spec_.head_dim,
                                 .q_out = qkv},
                                step.context);
  // The joined input of a draft is already normalized.
  kernels::Residual joined({.sum = step.joined, .scratch = {}, .gathered = {}});
  return kernels::norm_qkv_rope_store(spec_.joined_size > 0 ? joined : step.residual,
                                      {.norm = norm_,
                                       .qkv = qkv_,
                                       .q_gates = spec_.output_gate,
                                       .qk_norm = qk_norm_,
                                       .norm_v = spec_.v_norm,
                                       .k_as_v = spec_.k_as_v,
                                       .rope = rope,
                                       .temperature = spec_.temperature,
                                       .positions = step.batch.positions,
                                       .to = step.attention.destination(layer_, step.batch),
                                       .num_q_heads = spec_.num_q_heads,
                                       .num_kv_heads = spec_.num_kv_heads,
                                       .qkv_out = qkv},
                                      step.context);
}

void AttentionModule::forward(ModuleStep& step) const {
  const TensorView qkv = step.scratch.take(qkv_features());
  const TensorView attended = step.scratch.take(q_features());
  const TensorView q = project(step, qkv);
  AttentionLayer layer = layer_;
  if (spec_.sinks) layer.sinks = sinks_.span<const float>();
  step.attention.forward(layer, {.q = q, .out = attended.split(1, spec_.head_dim)}, step.batch,
                         step.context.stream);
  if (spec_.output_gate) {
    const TensorView gates = qkv.slice(1, 0, spec_.num_q_heads * q_width())
                                 .split(1, q_width())
                                 .slice(2, spec_.head_dim, q_width());
    kernels::sigmoid_mul(gates, attended.split(1, spec_.head_dim), step.context.stream);
  }
  kernels::scale(attended, spec_.output_scale, step.context.stream);
  if (norms_.post_ln)
    kernels::linear_add_norm(attended, o_.front(), step.residual, stream_norm_, step.context);
  else
    kernels::linear_add(attended, o_.front(), step.residual, step.context, post_norm_);
}

}  // namespace attend
