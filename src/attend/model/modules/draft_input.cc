#include "attend/model/modules/draft_input.h"

#include "attend/base/error.h"
#include "attend/kernels/fused/vocab_ops.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend {

std::string layer_prefix(int layer, const ModelSpec& model, const DecoderNames& names) {
  const int first = model.draft ? model.draft->first_layer : 0;
  return std::string(names.layers) + "." + std::to_string(first + layer) + ".";
}

std::string draft_weight_name(std::string_view name, const ModelSpec& model, const DecoderNames& names) {
  if (!name.starts_with('.')) return std::string(name);
  return layer_prefix(0, model, names) + std::string(name.substr(1));
}

DraftInput::DraftInput(const ModelSpec& model, const DecoderNames& names)
    : model_(model),
      spec_(*model.draft),
      names_(names),
      embedding_norm_{.weight = {}, .eps = model.norm_eps},
      hidden_norm_(embedding_norm_) {
  const int num_norms = spec_.norm_per_state ? spec_.num_hidden : spec_.norm_over_states ? 1 : 0;
  state_norms_.assign(static_cast<size_t>(num_norms), embedding_norm_);
}

void DraftInput::add_slots(SlotWriter& slots) {
  const auto name = [&](std::string_view part) { return draft_weight_name(part, model_, names_); };
  const bool joins_in_attention = spec_.join == DraftJoin::kAttention;
  for (size_t i = 0; i < state_norms_.size(); ++i)
    slots.norm(spec_.norm_per_state ? name(names_.draft_state_norms) + "." + std::to_string(i)
                                    : name(names_.draft_states_norm),
               spec_.norm_per_state ? spec_.target_hidden_size : spec_.target_width(),
               state_norms_[i].weight);
  const int64_t inputs = spec_.target_width() + (joins_in_attention ? 0 : model_.hidden_size);
  slots.linear({{name(names_.draft_projection), model_.hidden_size}}, inputs, spec_.bias, ShardAxis::kNone,
               projection_);
  if (!spec_.input_norms) return;
  slots.norm(name(names_.draft_embedding_norm), model_.hidden_size, embedding_norm_.weight);
  slots.norm(name(names_.draft_hidden_norm),
             joins_in_attention ? model_.hidden_size : spec_.target_hidden_size, hidden_norm_.weight);
}

std::vector<int64_t> DraftInput::memory_widths() const {
  const bool in_attention = spec_.join == DraftJoin::kAttention;
  const int64_t joined = model_.hidden_size + (in_attention ? model_.hidden_size : spec_.target_width());
  return {joined, state_norms_.empty() ? 0 : spec_.target_width()};
}

void DraftInput::read(const TensorView& x, const kernels::Norm& norm, const TensorView& out,
                      Stream& stream) const {
  if (norm.weight.empty()) return kernels::copy_rows(x, out, stream);
  kernels::rms_norm(x, norm.weight, norm.eps, out, stream);
}

void DraftInput::project(const TensorView& x, const TensorView& out,
                         const kernels::OpContext& context) const {
  kernels::linear({.x = x,
                   .weight = projection_.front().weight,
                   .bias = projection_.front().bias,
                   .out = out,
                   .workspace = context.workspace,
                   .batch_invariant = context.batch_invariant,
                   .rounds_x = context.rounds_x},
                  context.stream);
}

TensorView DraftInput::normed_states(const TensorView& hidden, Scratch& memory, Stream& stream) const {
  if (state_norms_.empty()) return hidden;
  const TensorView normed = memory.take(spec_.target_width());
  const auto count = std::ssize(state_norms_);
  const int64_t width = spec_.target_width() / count;
  for (int64_t i = 0; i < count; ++i) {
    const auto part = [&](const TensorView& view) { return view.slice(1, i * width, (i + 1) * width); };
    read(part(hidden), state_norms_[static_cast<size_t>(i)], part(normed), stream);
  }
  return normed;
}

TensorView DraftInput::forward(const DraftRows& rows, const Weight& embedding, Scratch& memory,
                               kernels::Residual& residual, const kernels::OpContext& context) const {
  const TensorView& hidden = rows.hidden_states;
  const int64_t num_tokens = std::ssize(rows.token_ids), size = model_.hidden_size;
  const bool from_target = rows.source == HiddenSource::kTarget;
  const int64_t width = from_target ? spec_.target_width() : size;
  require(hidden.rank == 2 && hidden.shape[0] == num_tokens && hidden.shape[1] == width, "hidden_states ",
          hidden, ": expected [", num_tokens, ", ", width, "]");
  const bool in_attention = spec_.join == DraftJoin::kAttention;
  const int64_t joined_width = size + (in_attention ? size : width);
  const TensorView joined = memory.take(joined_width);
  const int64_t h_begin = spec_.hidden_first ? 0 : size,
                e_begin = spec_.hidden_first ? joined_width - size : 0;
  const TensorView e = joined.slice(1, e_begin, e_begin + size);
  kernels::embed({.ids = rows.token_ids, .table = embedding, .scale = model_.embedding_scale, .out = e},
                 context);
  if (!embedding_norm_.weight.empty())
    kernels::rms_norm(e, embedding_norm_.weight, embedding_norm_.eps, e, context.stream);
  // A norm of zeros is zero.
  if (spec_.clears_first_embedding) kernels::clear_first_rows(rows.positions, e, context.stream);
  const TensorView h = joined.slice(1, h_begin, h_begin + joined_width - size);
  if (!in_attention) {
    read(hidden, hidden_norm_, h, context.stream);
    project(joined, residual.sum(), context);
    return {};
  }
  if (from_target)
    project(normed_states(hidden, memory, context.stream), residual.sum(), context);
  else
    kernels::copy_rows(hidden, residual.sum(), context.stream);
  read(residual.sum(), hidden_norm_, h, context.stream);
  if (spec_.stream_normed) kernels::copy_rows(h, residual.sum(), context.stream);
  return joined;
}

}  // namespace attend
