#include "attend/model/modules/mla/mla.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "attend/base/error.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/model/modules/mla/expand_mla.h"
#include "attend/model/modules/mla/mla_path.h"

namespace attend {
namespace {

void multiply(const TensorView& x, const TensorView& weight, const TensorView& product,
              const kernels::OpContext& context) {
  kernels::head_linear({.x = x,
                        .weight = weight,
                        .out = product,
                        .workspace = context.workspace,
                        .batch_invariant = context.batch_invariant},
                       context.stream);
}

}  // namespace

MlaModule::MlaModule(const MlaSpec& spec, const NormPlacement& norms, int layer_id, const ModelSpec& model,
                     const DecoderNames& names)
    : spec_(spec),
      layer_(attention_layer(spec, layer_id)),
      expanded_(expanded_layer(spec, layer_id)),
      hidden_size_(model.hidden_size),
      names_(names),
      norm_(make_norm(true, model)),
      q_norm_{.weight = {}, .eps = spec.latent_eps},
      latent_norm_{.weight = {}, .eps = spec.latent_eps} {
  if (!norms.before || norms.after)
    fail(ErrorCode::kUnsupported, model.architecture,
         ": latent attention requires a norm before it and none after it");
  if (spec.bias && spec.q_lora_rank == 0)
    fail(ErrorCode::kUnsupported, model.architecture,
         ": attention_bias requires q_lora_rank: without it, only one of two joined projections has a bias");
  if (spec.has_own_indexer()) indexer_.emplace(spec, hidden_size_, names);
}

void MlaModule::add_slots(SlotWriter& slots) {
  slots.norm(names_.attention_norm, hidden_size_, norm_);
  const bool has_q_latent = spec_.q_lora_rank > 0;
  // Every rank computes whole latent vectors. Without a latent vector for q, a rank computes its heads of q.
  const int64_t q_unit = has_q_latent ? spec_.q_lora_rank : q_head_dim();
  slots.linear({{has_q_latent ? names_.q_a_proj : names_.q_proj, first_features() - row_features(), q_unit},
                {names_.kv_a_proj, row_features(), row_features(), /*is_replicated=*/true}},
               hidden_size_, spec_.bias, has_q_latent ? ShardAxis::kNone : ShardAxis::kOutFeatures, first_);
  if (has_q_latent) {
    slots.norm(names_.q_a_norm, spec_.q_lora_rank, q_norm_.weight);
    slots.linear({{names_.q_b_proj, q_features(), q_head_dim()}}, spec_.q_lora_rank, /*bias=*/false,
                 ShardAxis::kOutFeatures, q_b_);
  }
  slots.norm(names_.kv_a_norm, spec_.kv_lora_rank, latent_norm_.weight);
  const int64_t kv_head = spec_.nope_dim + spec_.v_dim;
  slots.linear({{names_.kv_b_proj, spec_.num_heads * kv_head, kv_head}}, spec_.kv_lora_rank, /*bias=*/false,
               ShardAxis::kOutFeatures, kv_b_, /*dequantize_on_load=*/true);
  slots.linear({{names_.o_proj, hidden_size_}}, {int64_t{spec_.num_heads} * spec_.v_dim, spec_.v_dim},
               spec_.bias, ShardAxis::kInFeatures, o_);
  if (indexer_) indexer_->add_slots(slots);
}

std::vector<int64_t> MlaModule::scratch_widths() const {
  const int64_t latents = int64_t{spec_.num_heads} * spec_.kv_lora_rank;
  const std::vector<int64_t> absorbed{latents, latents}, expanded = expanded_scratch_widths(spec_);
  // A step uses one of the two forms. Each width is rounded up to 64 bytes.
  const auto sum = [](const std::vector<int64_t>& widths) {
    return std::accumulate(widths.begin(), widths.end(), int64_t{0});
  };
  std::vector<int64_t> widths{first_features(), spec_.q_lora_rank > 0 ? q_features() : 0,
                              int64_t{spec_.num_heads} * spec_.v_dim};
  widths.insert(widths.end(), expanded.begin(), expanded.end());
  if (const int64_t more = sum(absorbed) - sum(expanded); more > 0) widths.push_back(more);
  if (indexer_) std::ranges::copy(indexer_->scratch_widths(), std::back_inserter(widths));
  return widths;
}

TensorView MlaModule::key_weight() const {
  return kv_b_.front().weight.data.split(0, spec_.nope_dim + spec_.v_dim).slice(1, 0, spec_.nope_dim);
}

TensorView MlaModule::value_weight() const {
  const int64_t rows = spec_.nope_dim + spec_.v_dim;
  return kv_b_.front().weight.data.split(0, rows).slice(1, spec_.nope_dim, rows);
}

TensorView MlaModule::absorbed_queries(ModuleStep& step, const TensorView& q) const {
  const int64_t rank = spec_.kv_lora_rank;
  const TensorView q_latents = step.scratch.take(spec_.num_heads * rank).split(1, rank);
  multiply(q.slice(2, 0, spec_.nope_dim), key_weight().transpose(1, 2), q_latents, step.context);
  return q_latents;
}

void MlaModule::attend_absorbed(ModuleStep& step, AttentionInput input, const TensorView& out) const {
  const int64_t rank = spec_.kv_lora_rank;
  const TensorView latents = step.scratch.take(spec_.num_heads * rank).split(1, rank);
  input.out = latents;
  step.attention.forward(layer_, input, step.batch, step.context.stream);
  multiply(latents, value_weight(), out, step.context);
}

void MlaModule::forward(ModuleStep& step) const {
  const kernels::OpContext& context = step.context;
  const TensorView first = step.scratch.take(first_features());
  kernels::norm_linear(step.residual, {.norm = norm_, .linear = first_, .out = first}, context);
  TensorView q = first.slice(1, 0, first_features() - row_features());
  const TensorView rows = first.slice(1, first_features() - row_features(), first_features());
  const TensorView q_latent = q;
  if (spec_.q_lora_rank > 0) {
    q = step.scratch.take(q_features());
    kernels::latent_linear(q_latent, q_norm_, q_b_.front(), q, context);
  }
  q = q.split(1, q_head_dim());
  if (spec_.temperature.slope > 0.0f)
    kernels::scale_by_position(q, step.batch.positions, spec_.temperature, context.stream);
  const RopeRows rope = spec_.rope_set < 0 ? RopeRows() : step.ropes[static_cast<size_t>(spec_.rope_set)];
  const TensorView q_rope = q.slice(2, spec_.nope_dim, q_head_dim());
  const kernels::KvDestination cache = step.attention.destination(layer_, step.batch);
  AttentionInput input{
      .q_rope = q_rope,
      .selects_keys = layer_.indexer.selects(step.batch.max_seqlen_kv, context.batch_invariant)};
  if (indexer_) {
    const TensorView weights =
        indexer_->store_keys(step, norm_, rope, step.attention.index_keys(layer_), cache.slots);
    if (input.selects_keys) {
      input.index_q = indexer_->queries(step, q_latent, rope);
      input.index_weights = weights;
    }
  }
  const bool expands = !input.selects_keys && use_expanded(spec_, step.batch, context.batch_invariant);
  // The launch below that stores K/V also rounds q if attention requires q in fp8, so q must be computed
  // first.
  if (!expands) input.q = absorbed_queries(step, q);
  kernels::latent_norm_rope_store({.kv_a = rows,
                                   .norm = latent_norm_.weight,
                                   .eps = latent_norm_.eps,
                                   .q_rope = q_rope,
                                   .positions = rope.positions,
                                   .cos = rope.cos,
                                   .sin = rope.sin,
                                   .interleaved = rope.interleaved,
                                   .to = cache,
                                   .q_latent = cache.fp8_q && !expands ? input.q : TensorView()},
                                  context.stream);
  const TensorView attended = step.scratch.take(int64_t{spec_.num_heads} * spec_.v_dim);
  const TensorView out = attended.split(1, spec_.v_dim);
  if (expands)
    attend_expanded(step, {.spec = spec_,
                           .layer = expanded_,
                           .key_weight = key_weight(),
                           .value_weight = value_weight(),
                           .q = q,
                           .rows = rows,
                           .cache = cache,
                           .out = out});
  else
    attend_absorbed(step, input, out);
  kernels::linear_add(attended, o_.front(), step.residual, context);
}

}  // namespace attend
