#include "attend/model/modules/attention.h"

#include "attend/base/error.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend {
namespace {

bool has_input_norm(const AttentionSpec& spec, const NormPlacement& norms) {
  return norms.before && spec.input_norm && spec.joined_size == 0;
}

}  // namespace

AttentionModule::AttentionModule(const AttentionSpec& spec, const NormPlacement& norms, int layer_id,
                                 const ModelSpec& model, const DecoderNames& names)
    : spec_(spec),
      layer_(attention_layer(spec, layer_id)),
      hidden_size_(model.hidden_size),
      names_(names),
      norms_(norms),
      norm_(make_norm(has_input_norm(spec, norms), model)),
      post_norm_(make_post_norm(norms.after || norms.post_ln, model)),
      qk_norm_{.q = {},
               .k = {},
               .eps = model.norm_eps,
               .after_rope = spec.qk_norm == QkNormSpan::kHeadAfterRope ||
                             spec.qk_norm == QkNormSpan::kHeadAfterRopeWeighted,
               .layer_norms = spec.qk_norm == QkNormSpan::kHeadLayerNorm} {
  if (spec.pads_heads() && (spec.kv_layer >= 0 || spec.v_norm))
    fail(ErrorCode::kUnsupported, model.architecture, ": head_dim ", spec.head_dim,
         ": attend supports multiples of 8 with normalized or shared V");
}

int64_t AttentionModule::gate_width() const {
  if (spec_.output_gate == OutputGate::kPerElement) return spec_.head_dim_v();
  return spec_.output_gate == OutputGate::kPerHead ? 1 : 0;
}

std::vector<SlotWriter::Part> AttentionModule::qkv_parts() const {
  const int64_t head = spec_.head_dim;
  if (spec_.qkv_storage != QkvStorage::kByKvHead) {
    const bool fused = spec_.qkv_storage == QkvStorage::kFused;
    std::vector<SlotWriter::Part> parts{
        {fused ? names_.qkv_proj : names_.q_proj, spec_.num_q_heads * q_width(), q_width()}};
    if (has_kv()) parts.push_back({fused ? names_.qkv_proj : names_.k_proj, k_features(), head, true});
    if (has_kv() && !spec_.k_as_v)
      parts.push_back({fused ? names_.qkv_proj : names_.v_proj, v_features(), spec_.head_dim_v(), true});
    if (const int64_t width = gate_width(); width > 0)
      parts.push_back({names_.output_gate_proj, spec_.num_q_heads * width, width});
    return parts;
  }
  const int64_t group = spec_.num_q_heads / spec_.num_kv_heads * q_width();  // q of a head of k
  const int64_t stride = group + 2 * head, tensor_rows = spec_.num_kv_heads * stride;
  std::vector<SlotWriter::Part> parts;
  const auto add = [&](int64_t first, int64_t rows, int64_t unit, bool is_replicated) {
    for (int i = 0; i < spec_.num_kv_heads; ++i)
      parts.push_back({.name = names_.qkv_proj,
                       .out_features = rows,
                       .unit = unit,
                       .is_replicated = is_replicated,
                       .first_row = i * stride + first,
                       .tensor_rows = tensor_rows,
                       .set_idx = i,
                       .set_size = spec_.num_kv_heads});
  };
  add(0, group, q_width(), /*is_replicated=*/false);
  add(group, head, head, /*is_replicated=*/true);
  add(group + head, head, head, /*is_replicated=*/true);
  return parts;
}

void AttentionModule::add_slots(SlotWriter& slots) {
  if (has_input_norm(spec_, norms_)) {
    const bool separate = norms_.parallel && !norms_.shared && !names_.parallel_attention_norm.empty();
    slots.norm(separate ? names_.parallel_attention_norm : names_.attention_norm, hidden_size_, norm_,
               spec_.input_scale);
  }
  const int64_t head = spec_.head_dim;
  slots.linear(qkv_parts(), spec_.joined_size > 0 ? spec_.joined_size : hidden_size_, spec_.qkv_bias,
               ShardAxis::kOutFeatures, qkv_);
  if (spec_.qk_norm == QkNormSpan::kHeadLayerNorm) {
    slots.head_norms(names_.q_norm, spec_.num_q_heads, head, qk_norm_.q);
    slots.head_norms(names_.k_norm, spec_.num_kv_heads, head, qk_norm_.k);
  } else if (spec_.qk_norm != QkNormSpan::kNone && spec_.qk_norm != QkNormSpan::kHeadAfterRope) {
    const bool each = spec_.qk_norm != QkNormSpan::kToken;
    slots.norm(names_.q_norm, each ? spec_.head_dim : q_features(), qk_norm_.q);
    if (has_kv()) slots.norm(names_.k_norm, each ? spec_.head_dim : k_features(), qk_norm_.k);
  }
  if (spec_.sinks) slots.vector_in_f32(names_.sinks, spec_.num_q_heads, sinks_, ShardAxis::kOutFeatures);
  slots.linear({{names_.o_proj, hidden_size_}}, {out_features(), spec_.head_dim_v()}, spec_.output_bias,
               ShardAxis::kInFeatures, o_);
  if (norms_.after || norms_.post_ln) slots.norm(names_.attention_post_norm, hidden_size_, post_norm_);
}

std::vector<int64_t> AttentionModule::scratch_widths() const {
  return {qkv_features(), out_features(), padded_features(), padded_out_features()};
}

int64_t AttentionModule::padded_features() const {
  if (!spec_.pads_heads()) return 0;
  return int64_t{spec_.num_q_heads + spec_.num_kv_heads} * spec_.cached_head_dim() +
         int64_t{spec_.num_kv_heads} * spec_.cached_head_dim_v();
}

TensorView AttentionModule::project(ModuleStep& step, const TensorView& qkv) const {
  const RopeRows rows = spec_.rope_set < 0 ? RopeRows() : step.ropes[static_cast<size_t>(spec_.rope_set)];
  const kernels::RopeAngles rope{
      .cos = rows.cos, .sin = rows.sin, .positions = rows.positions, .interleaved = rows.interleaved};
  const TensorView padded = spec_.pads_heads() ? step.scratch.take(padded_features()) : TensorView();
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
                                       .q_gates = spec_.output_gate == OutputGate::kAfterQ,
                                       .clip = spec_.qkv_clip,
                                       .qk_norm = qk_norm_,
                                       .norm_v = spec_.v_norm,
                                       .k_as_v = spec_.k_as_v,
                                       .rope = rope,
                                       .temperature = spec_.temperature,
                                       .positions = step.batch.positions,
                                       .to = step.attention.destination(layer_, step.batch),
                                       .num_q_heads = spec_.num_q_heads,
                                       .num_kv_heads = spec_.num_kv_heads,
                                       .head_dim = spec_.head_dim,
                                       .head_dim_v = spec_.head_dim_v(),
                                       .padded = padded,
                                       .qkv_out = qkv},
                                      step.context);
}

void AttentionModule::apply_gates(const TensorView& qkv, const TensorView& attended, Stream& stream) const {
  const TensorView heads = attended.split(1, spec_.head_dim_v());
  switch (spec_.output_gate) {
    case OutputGate::kNone:
      return;
    case OutputGate::kAfterQ: {
      const TensorView q = qkv.slice(1, 0, spec_.num_q_heads * q_width()).split(1, q_width());
      return kernels::gate_mul(q.slice(2, spec_.head_dim, q_width()), heads, stream, spec_.gate_function);
    }
    case OutputGate::kPerElement:
    case OutputGate::kPerHead: {
      const TensorView gates = qkv.slice(1, qkv_end(), qkv_features()).split(1, gate_width());
      const auto apply = gate_width() == 1 ? kernels::scale_by_gate : kernels::gate_mul;
      return apply(gates, heads, stream, spec_.gate_function);
    }
  }
}

void AttentionModule::forward(ModuleStep& step) const {
  const TensorView qkv = step.scratch.take(qkv_features());
  const TensorView attended = step.scratch.take(out_features());
  const TensorView q = project(step, qkv);
  AttentionLayer layer = layer_;
  if (spec_.sinks) layer.sinks = sinks_.span<const float>();
  const TensorView out = spec_.pads_heads()
                             ? step.scratch.take(padded_out_features()).split(1, spec_.cached_head_dim_v())
                             : attended.split(1, spec_.head_dim_v());
  step.attention.forward(layer, {.q = q, .out = out}, step.batch, step.context.stream);
  if (spec_.pads_heads())
    kernels::copy_heads(out, attended.split(1, spec_.head_dim_v()), step.context.stream);
  apply_gates(qkv, attended, step.context.stream);
  kernels::scale(attended, spec_.output_scale, step.context.stream);
  if (norms_.post_ln)
    kernels::linear_add_norm(attended, o_.front(), step.residual, post_norm_, step.context);
  else
    kernels::linear_add(attended, o_.front(), step.residual, step.context, post_norm_);
}

}  // namespace attend
