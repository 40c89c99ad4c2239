#include "attend/model/modules/gated_delta.h"

#include <array>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend {

GatedDeltaModule::GatedDeltaModule(const GatedDeltaSpec& spec, const NormPlacement& norms, int state_layer,
                                   const ModelSpec& model, const DecoderNames& names, Device device,
                                   DType dtype)
    : spec_(spec),
      state_layer_(state_layer),
      hidden_size_(model.hidden_size),
      workspace_width_(kernels::gated_delta_workspace_width(spec.num_v_heads, spec.head_dim_k,
                                                            spec.decays_per_channel, dtype, device)),
      names_(names),
      norm_(make_norm(true, model)),
      gated_norm_{.weight = {}, .eps = spec.norm_eps} {
  require_norm_before(norms, model);
}

void GatedDeltaModule::add_slots(SlotWriter& slots) {
  slots.norm(names_.attention_norm, hidden_size_, norm_);
  const int64_t q = spec_.q_features(), v = spec_.v_features(), v_heads = spec_.num_v_heads;
  const int64_t ratio = v_heads / spec_.num_k_heads, v_unit = ratio * spec_.head_dim_v;
  const int64_t q_unit = spec_.head_dim_k, a_unit = spec_.decays_per_channel ? ratio * q_unit : ratio;
  const int64_t rank = spec_.gate_rank, decays = spec_.decay_features();
  const bool low_rank = rank > 0;
  if (spec_.grouped_projections)
    slots.linear({{names_.in_proj_qkvz, 2 * (q + v), 2 * (q_unit + v_unit)},
                  {names_.in_proj_ba, 2 * v_heads, 2 * ratio}},
                 hidden_size_, /*bias=*/false, ShardAxis::kOutFeatures, in_proj_);
  else
    // Every rank computes all features between two projections.
    slots.linear({{names_.in_proj_q, q, q_unit},
                  {names_.in_proj_k, q, q_unit},
                  {names_.in_proj_v, v, v_unit},
                  {names_.in_proj_z, low_rank ? rank : v, low_rank ? rank : v_unit, low_rank},
                  {names_.in_proj_b, v_heads, ratio},
                  {names_.in_proj_a, low_rank ? rank : decays, low_rank ? rank : a_unit, low_rank}},
                 hidden_size_, /*bias=*/false, ShardAxis::kOutFeatures, in_proj_);
  if (low_rank) {
    slots.linear({{names_.second_proj_z, v, v_unit}}, rank, /*bias=*/false, ShardAxis::kOutFeatures,
                 second_z_);
    slots.linear({{names_.second_proj_a, decays, a_unit}}, rank, /*bias=*/false, ShardAxis::kOutFeatures,
                 second_a_);
  }
  slots.convolution({{names_.conv_q, q}, {names_.conv_k, q}, {names_.conv_v, v}}, spec_.conv_kernel, conv_);
  slots.vector_in_f32(names_.a_log, v_heads, a_log_, ShardAxis::kOutFeatures,
                      spec_.decays_per_channel ? StoredLayout::kBroadcast : StoredLayout::kRows);
  slots.vector_in_f32(names_.dt_bias, decays, dt_bias_, ShardAxis::kOutFeatures);
  slots.gated_norm(names_.gated_norm, spec_.head_dim_v, gated_norm_.weight);
  slots.linear({{names_.out_proj, hidden_size_}}, {v, v_unit}, /*bias=*/false, ShardAxis::kInFeatures,
               out_proj_);
}

std::vector<int64_t> GatedDeltaModule::scratch_widths() const {
  return {projected_features(), spec_.conv_channels(), spec_.v_features(), workspace_width_};
}

GatedDeltaModule::Projections GatedDeltaModule::projections(const TensorView& projected) const {
  const int64_t q = spec_.q_features(), v = spec_.v_features(), v_heads = spec_.num_v_heads;
  const int64_t k_heads = spec_.num_k_heads, ratio = v_heads / k_heads;
  // One part after another, in groups of `width` features.
  int64_t first = 0;
  const auto part = [&](const TensorView& rows, int64_t features, int64_t width) {
    const TensorView columns = rows.slice(rows.rank - 1, first, first + features);
    first += features;
    return columns.rank == 3 ? columns : columns.split(1, width);
  };
  Projections parts;
  if (spec_.grouped_projections) {
    const int64_t key = spec_.head_dim_k, values = ratio * spec_.head_dim_v;
    const TensorView qkvz = projected.slice(1, 0, 2 * (q + v)).split(1, 2 * (key + values));
    const TensorView ba = projected.slice(1, 2 * (q + v), projected_features()).split(1, 2 * ratio);
    parts.q = part(qkvz, key, key);
    parts.k = part(qkvz, key, key);
    parts.v = part(qkvz, values, values);
    parts.z = part(qkvz, values, values);
    first = 0;
    parts.b = part(ba, ratio, ratio);
    parts.a = part(ba, ratio, ratio);
    return parts;
  }
  parts.q = part(projected, q, q);
  parts.k = part(projected, q, q);
  parts.v = part(projected, v, v);
  if (spec_.gate_rank > 0) {
    first += spec_.gate_rank;
    parts.b = part(projected, v_heads, ratio);
    first = first_features();
    parts.z = part(projected, v, v);
  } else {
    parts.z = part(projected, v, v);
    parts.b = part(projected, v_heads, ratio);
  }
  parts.a = part(projected, spec_.decay_features(), decay_width());
  return parts;
}

void GatedDeltaModule::project_gates(const TensorView& projected, const kernels::OpContext& context) const {
  const int64_t rank = spec_.gate_rank, second = first_features();
  const auto project = [&](int64_t from, const Linear& linear, int64_t to, int64_t features) {
    kernels::linear(projected.slice(1, from, from + rank), linear, projected.slice(1, to, to + features),
                    context);
  };
  project(spec_.conv_channels(), second_z_.front(), second, spec_.v_features());
  project(second - rank, second_a_.front(), second + spec_.v_features(), spec_.decay_features());
}

void GatedDeltaModule::mix(const Projections& parts, const StatePool& states,
                           const kernels::RecurrentBatch& batch, const MixScratch& scratch,
                           const TensorView& out, Stream& stream, const kernels::GatedNormArgs* norm,
                           bool single_tokens) const {
  const LayerState& state = states.layer(state_layer_);
  const std::array<TensorView, 3> conv_inputs = {parts.q, parts.k, parts.v};
  const kernels::CausalConvArgs conv{.inputs = conv_inputs,
                                     .weight = conv_,
                                     .bias = {},
                                     .state = state.conv,
                                     .out = scratch.convolved,
                                     .batch = batch};
  const int64_t q = spec_.q_features();
  const auto heads = [&](int64_t begin, int64_t end, int64_t head_dim) {
    return scratch.convolved.slice(1, begin, end).split(1, head_dim);
  };
  const kernels::GatedDeltaArgs delta{
      .q = heads(0, q, spec_.head_dim_k),
      .k = heads(q, 2 * q, spec_.head_dim_k),
      .v = heads(2 * q, spec_.conv_channels(), spec_.head_dim_v),
      .alpha = parts.a,
      .beta = parts.b,
      .a_log = a_log_,
      .dt_bias = spec_.decays_per_channel ? dt_bias_.split(0, spec_.head_dim_k) : dt_bias_,
      .beta_scale = spec_.beta_scale,
      .state = state.recurrent,
      .out = out.split(1, spec_.head_dim_v),
      .batch = batch,
      .workspace = scratch.workspace};
  if (norm != nullptr && single_tokens &&
      kernels::delta_token({.conv = conv, .delta = delta, .norm = *norm}, stream))
    return;
  kernels::causal_conv(conv, stream);
  kernels::gated_delta_rule(delta, stream);
  if (norm != nullptr) kernels::gated_norm(*norm, stream);
}

void GatedDeltaModule::forward(ModuleStep& step) const {
  const TensorView projected = step.scratch.take(projected_features());
  MixScratch scratch{.convolved = step.scratch.take(spec_.conv_channels()), .workspace = {}};
  const TensorView out = step.scratch.take(spec_.v_features());
  if (workspace_width_ > 0 && step.batch.max_seqlen_q >= kernels::kMinDeltaChunkTokens)
    scratch.workspace = step.scratch.take(workspace_width_);
  Stream& stream = step.context.stream;
  kernels::norm_linear(step.residual,
                       {.norm = norm_, .linear = in_proj_, .out = projected.slice(1, 0, first_features())},
                       step.context);
  if (spec_.gate_rank > 0) project_gates(projected, step.context);
  keep_inputs(projected, step);
  const Projections parts = projections(projected);
  const kernels::GatedNormArgs norm{.x = out.split(1, spec_.head_dim_v),
                                    .weight = gated_norm_.weight,
                                    .eps = gated_norm_.eps,
                                    .gate = parts.z,
                                    .sigmoid = spec_.sigmoid_gate};
  mix(parts, *step.states, step.recurrent, scratch, out, stream, &norm, step.batch.max_seqlen_q == 1);
  kernels::linear_add(out, out_proj_.front(), step.residual, step.context);
}

void GatedDeltaModule::replay(ReplayStep& step) const {
  const MixScratch scratch{.convolved = step.scratch.take(spec_.conv_channels()), .workspace = {}};
  const TensorView out = step.scratch.take(spec_.v_features());
  mix(projections(step.kept), step.states, step.batch, scratch, out, step.stream, nullptr,
      /*single_tokens=*/false);
}

}  // namespace attend
