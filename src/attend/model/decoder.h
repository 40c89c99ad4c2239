// DecoderModel: the model of a ModelSpec.
//
//   residual = embedding[ids], scaled; with learned positions norm(embedding[ids] + positions[p] + types[t])
//   of drafts: residual = DraftInput of embedding[ids] and hidden states
//   per layer: residual += after(mixer(before(residual))); residual += after(mlp(before(residual)));
//     with layer embeddings e: residual += norm(Wo (gelu(Wg residual) * e)); with layer scales: residual *= s
//   logits = norm(residual)[rows] Whead, capped
//
// before and after are norms or the identity. With NormPlacement::post_ln, a sublayer computes
// residual = norm(residual + sublayer(residual)).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "attend/model/architectures/architecture.h"
#include "attend/model/loadable_model.h"
#include "attend/model/modules/draft_input.h"
#include "attend/model/modules/layer_embeddings.h"
#include "attend/model/modules/module.h"
#include "attend/tensor/arena.h"

namespace attend {

class DecoderModel : public LoadableModel {
 public:
  DecoderModel(const ModelSpec& spec, const DecoderNames& names, const ModelPlacement& placement,
               bool has_lm_head);

  const ModelSpec& spec() const override { return spec_; }
  void prepare(const BatchLimits& limits) override;
  void forward(const ModelInput& input, const ForwardBatch& batch, AttentionBackend& attention,
               const TensorView& logits, Stream& stream) override;
  void head(View<const int32_t> rows, const TensorView& logits, Stream& stream) override;
  void replay(const StateReplay& replay, Stream& stream) override;
  VocabWeights vocab() const override;
  void share_vocab(const VocabWeights& target) override;
  View<const int32_t> head_tokens() const override {
    if (head_tokens_.view().empty()) return {};
    return head_tokens_.span<const int32_t>();
  }
  void check_weights() const override;
  size_t weight_bytes() const override { return weights_.num_bytes; }
  size_t expert_bytes() const override { return weights_.expert_bytes; }

  std::vector<WeightSlot> weight_slots() override;
  void adopt(LoadedWeights weights) override;
  void set_head_tokens(Tensor tokens) override { head_tokens_ = std::move(tokens); }
  double prepared_bytes(const BatchLimits& limits) override;

 private:
  // Bytes that prepare() allocates from one arena, as doubles, which do not overflow.
  struct Sizes {
    double stream;  // each of residual, scratch and gathered rows
    double partial_squares;
    double scratch;  // largest of all modules
    double workspace;
    double kept;              // inputs of all recurrent layers for verified tokens
    double draft;             // memory of the draft's input
    double layer_embeddings;  // of all layers, and scratch

    double sum() const {
      return 3.0 * stream + partial_squares + scratch + workspace + kept + draft + layer_embeddings;
    }
  };
  Sizes sizes(const BatchLimits& limits);
  int num_positions(const BatchLimits& limits) const;
  void embed(const ModelInput& input, View<const int32_t> positions, const TensorView& out,
             Stream& stream) const;
  void add(int layer, std::unique_ptr<Module> module);
  // Rows of the head on this rank.
  int64_t num_head_rows() const {
    return head_bounds_.empty() ? spec_.head_size()
                                : head_bounds_[static_cast<size_t>(placement_.rank) + 1] -
                                      head_bounds_[static_cast<size_t>(placement_.rank)];
  }
  // Returns this rank's rows of a table that is also the head.
  Weight tied_head(const Weight& table) const;
  bool has_own_embedding() const { return !spec_.draft || spec_.draft->own_embedding; }
  // Writes `num_rows` rows of logits. `rows`: their tokens; empty: all tokens.
  void write_logits(int64_t num_rows, View<const int32_t> rows, const TensorView& logits, Stream& stream);
  // Writes the residual stream before layer output.before_layers[index].
  void write_stream(const HiddenOutput& output, size_t index, const kernels::OpContext& context);
  // Adds the rows of images that belong to this layer's output.
  void add_deepstack(const ModelInput& input, int layer, const kernels::OpContext& context);
  // Returns true if module `module` is the mixer of a layer whose MLP reads the same stream.
  bool parallel(size_t module) const;
  void check(const ModelInput& input, const ForwardBatch& batch) const;
  kernels::OpContext context(Stream& stream) const;

  ModelSpec spec_;  // of the rank; vocabularies are whole
  const DecoderNames& names_;
  ModelPlacement placement_;
  bool has_lm_head_;
  std::vector<int64_t> head_bounds_;  // of several ranks: RankRanges of the head's rows

  Weight embedding_, positions_, token_types_;
  kernels::Norm embedding_norm_;
  std::optional<DraftInput> draft_input_;
  std::optional<LayerEmbeddings> layer_embeddings_;
  std::vector<std::unique_ptr<Module>> modules_;  // sublayers of each layer, in layer order
  std::vector<int> module_layers_;                // layer of each module
  kernels::Norm final_norm_;
  Linear head_;
  Tensor head_tokens_;  // int32 [head_size]; empty: row i of the head is token i
  LoadedWeights weights_;

  BatchLimits limits_;
  std::optional<Arena> arena_;
  kernels::Residual::Memory stream_memory_;
  std::optional<kernels::Residual> residual_;  // stream of the last forward()
  TensorView scratch_, draft_memory_;
  std::vector<TensorView> kept_;  // of each module: ModuleStep::kept
  View<std::byte> workspace_;
  std::array<TensorView, 2> layer_vectors_;  // embeddings of all layers, and scratch
  std::vector<RopeTable> ropes_;
  std::vector<RopeRows> rope_rows_;  // rows of the step, one entry per rope set
  Tensor zero_types_;                // int32 [max_tokens] of zeros on the device, for learned positions
  Tensor zero_weight_;               // f32 [hidden_size] of zeros on the device, for a norm of embeddings
};

}  // namespace attend
