// DecoderModel: the one decoder of all dense architectures, assembled from what its config and weights hold.
//
//   residual = embedding[ids]
//   per layer:
//     x = norm(residual); q, k, v = x Wq, x Wk, x Wv (+ bias); q, k = rope(head norm(q, k))
//     residual += attention(q, k, v) Wo (+ bias)
//     x = norm(residual); residual += (silu(x Wgate) * x Wup) Wdown (+ bias)
//   logits = norm(residual)[rows] Whead
//
// On GPUs the dense layers norm what they take and add to the residual themselves, where a kernel does both
// at once, or begin the norm of the next when they end the residual's sum; on CPUs the sum waits for the next
// norm. q, k and v are left to the attention backend there, whose store may be part of their product.
#pragma once

#include <optional>
#include <vector>

#include "attend/kernels/gemm/linear.h"
#include "attend/model/decoder_weights.h"
#include "attend/model/model.h"
#include "attend/model/model_weights.h"
#include "attend/model/rope.h"
#include "attend/tensor/arena.h"

namespace attend {

class DecoderModel : public Model {
 public:
  // `files`: where weights that are mapped lie; nothing when they are in memory of their own.
  DecoderModel(ModelConfig config, DecoderWeights weights, size_t weight_bytes,
               const ModelPlacement& placement, std::optional<ModelWeights> files = {});

  const ModelConfig& config() const override { return config_; }
  void prepare(const BatchLimits& limits) override;
  void forward(const ModelInput& input, const ForwardBatch& batch, AttentionBackend& attention,
               const TensorView& logits, Stream& stream) override;
  void check_weights() const override;
  size_t weight_bytes() const override { return weight_bytes_; }

 private:
  // Activations of a step; views of the first num_tokens rows of what prepare() allocated.
  struct Activations {
    TensorView residual, x;        // [num_tokens, hidden_size]
    TensorView qkv;                // [num_tokens, (num_q_heads + 2 num_kv_heads) * head_dim]
    TensorView attended;           // [num_tokens, num_q_heads * head_dim]
    TensorView gate_up;            // [num_tokens, 2 intermediate_size]
    TensorView mlp;                // [num_tokens, intermediate_size]
    TensorView squares;            // GPU: [num_tokens, hidden_size / kNormSquares], of residual
    kernels::InputNorm norm = {};  // GPU: of residual, for the next product that takes it

    Activations first(int64_t num_tokens) const;
  };

  void project(const TensorView& x, const Projection& projection, const TensorView& out,
               Stream& stream) const;
  // x = norm(residual), on CPUs with x of before added to the residual, unless it is the `first` norm of a
  // step.
  void norm(const Tensor& weight, bool first, const Activations& a, Stream& stream) const;
  kernels::InputNorm residual_norm(const Tensor& weight, const Activations& a) const;
  // residual += x W^T + b on GPUs, and a.norm is the norm by `next_norm` that comes behind; on CPUs
  // a.x = x W^T + b, for norm() to add.
  void add_projection(const TensorView& x, const Projection& projection, const Tensor& next_norm,
                      Activations& a, Stream& stream) const;
  // The rows of x whose logits are wanted: x itself when they are all, as in a decode step.
  TensorView logit_rows(const ModelInput& input, const TensorView& x, Stream& stream) const;
  void check(const ModelInput& input, const ForwardBatch& batch, const TensorView& logits) const;
  void self_attention(const DecoderLayerWeights& weights, const AttentionLayer& layer, const RopeRows& rope,
                      Activations& a, const ForwardBatch& batch, AttentionBackend& attention,
                      Stream& stream) const;
  // `next_norm`: the weight of the norm behind this layer.
  void feed_forward(const DecoderLayerWeights& weights, const Tensor& next_norm, Activations& a,
                    Stream& stream) const;

  ModelConfig config_;
  DecoderWeights weights_;
  size_t weight_bytes_;
  ModelPlacement placement_;
  bool on_gpu_;
  std::optional<ModelWeights> files_;
  std::vector<AttentionLayer> attention_layers_;
  BatchLimits limits_;
  std::optional<Arena> arena_;
  Activations activations_;
  TensorView logit_rows_;            // [max_tokens, hidden_size]
  View<std::byte> dense_workspace_;  // what kernels::linear wants
  std::optional<RopeTable> rope_;
};

}  // namespace attend
