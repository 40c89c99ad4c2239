#include "attend/model/modules/layer_embeddings.h"

#include <cmath>
#include <numbers>

#include "attend/kernels/fused/vocab_ops.h"
#include "attend/kernels/norm_rope/elementwise.h"

namespace attend {
namespace {

// Factor of the sum of the two vectors.
constexpr auto kSumScale = static_cast<float>(1.0 / std::numbers::sqrt2);

}  // namespace

// The product is normalized, so its factor 1 / sqrt(hidden_size) multiplies the epsilon only.
LayerEmbeddings::LayerEmbeddings(const ModelSpec& model, const DecoderNames& names)
    : spec_(model.layer_embeddings.value()),
      num_layers_(model.num_layers()),
      hidden_size_(model.hidden_size),
      table_scale_(kSumScale * std::sqrt(static_cast<float>(spec_.size))),
      names_(names),
      norm_{.weight = {}, .eps = model.norm_eps * static_cast<float>(model.hidden_size)} {}

void LayerEmbeddings::add_slots(SlotWriter& slots) {
  slots.matrix(names_.layer_table, spec_.vocab_size, width(), WeightUse::kTable, table_);
  slots.linear({{names_.layer_table_proj, width()}}, hidden_size_, /*bias=*/false, ShardAxis::kNone,
               projection_);
  slots.norm(names_.layer_table_norm, spec_.size, norm_.weight, kSumScale);
}

void LayerEmbeddings::compute(View<const int32_t> ids, const TensorView& x, const TensorView& scratch,
                              const TensorView& out, const kernels::OpContext& context) const {
  kernels::embed({.ids = ids, .table = table_, .scale = table_scale_, .out = out}, context);
  kernels::linear(x, projection_.front(), scratch, context);
  const auto vectors = [&](const TensorView& rows) {
    return rows.reshape({rows.shape[0] * num_layers_, spec_.size});
  };
  kernels::rms_norm_add(vectors(scratch), norm_.weight, norm_.eps, vectors(out), context.stream);
}

LayerEmbeddingModule::LayerEmbeddingModule(int layer, const ModelSpec& model, const DecoderNames& names)
    : layer_(layer),
      size_(model.layer_embeddings.value().size),
      hidden_size_(model.hidden_size),
      names_(names),
      post_norm_{.weight = {}, .eps = model.norm_eps} {}

void LayerEmbeddingModule::add_slots(SlotWriter& slots) {
  slots.linear({{names_.layer_embedding_gate, size_}}, hidden_size_, /*bias=*/false, ShardAxis::kNone, gate_);
  slots.linear({{names_.layer_embedding_proj, hidden_size_}}, size_, /*bias=*/false, ShardAxis::kNone,
               projection_);
  slots.norm(names_.layer_embedding_norm, hidden_size_, post_norm_.weight);
}

void LayerEmbeddingModule::forward(ModuleStep& step) const {
  const TensorView x = step.scratch.take(size_);
  kernels::norm_activated_linear(
      step.residual,
      {.norm = no_norm_, .linear = gate_, .activation = kernels::PlainActivation::kGeluTanh, .out = x},
      step.context);
  kernels::multiply(step.layer_embeddings.slice(1, layer_ * size_, (layer_ + 1) * size_), x,
                    step.context.stream);
  kernels::linear_add(x, projection_.front(), step.residual, step.context, post_norm_);
}

}  // namespace attend
