// Embeddings per layer (LayerEmbeddingSpec): LayerEmbeddings computes the vectors of all layers at the start
// of a step, and LayerEmbeddingModule adds a layer's to the residual stream. LayerScaleModule multiplies the
// stream by the factor of a layer.
#pragma once

#include "attend/kernels/fused/operations.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/modules/module.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

class LayerEmbeddings {
 public:
  LayerEmbeddings(const ModelSpec& model, const DecoderNames& names);

  void add_slots(SlotWriter& slots);
  // Features per token of each of the two arrays that compute() writes.
  int64_t width() const { return int64_t{num_layers_} * spec_.size; }
  // Writes the vectors of all layers to `out`. x: rows of the embedding. out, scratch: [num_tokens, width()],
  // contiguous.
  void compute(View<const int32_t> ids, const TensorView& x, const TensorView& scratch, const TensorView& out,
               const kernels::OpContext& context) const;

 private:
  const LayerEmbeddingSpec spec_;
  const int num_layers_;
  const int64_t hidden_size_;
  const float table_scale_;
  const DecoderNames& names_;
  Weight table_;
  kernels::Norm norm_;
  std::vector<Linear> projection_;
};

class LayerEmbeddingModule : public Module {
 public:
  LayerEmbeddingModule(int layer, const ModelSpec& model, const DecoderNames& names);

  void add_slots(SlotWriter& slots) override;
  std::vector<int64_t> scratch_widths() const override { return {size_}; }
  const kernels::Norm& input_norm() const override { return no_norm_; }
  void forward(ModuleStep& step) const override;

 private:
  const int64_t layer_, size_, hidden_size_;
  const DecoderNames& names_;
  kernels::Norm no_norm_, post_norm_;
  std::vector<Linear> gate_, projection_;
};

class LayerScaleModule : public Module {
 public:
  explicit LayerScaleModule(const DecoderNames& names) : names_(names) {}

  void add_slots(SlotWriter& slots) override { slots.factors(names_.layer_scale, 1, factor_); }
  std::vector<int64_t> scratch_widths() const override { return {}; }
  const kernels::Norm& input_norm() const override { return no_norm_; }
  void forward(ModuleStep& step) const override {
    kernels::scale_residual(step.residual, factor_, step.context);
  }

 private:
  const DecoderNames& names_;
  kernels::Norm no_norm_;
  TensorView factor_;
};

}  // namespace attend
