#include "attend/model/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/norm_rope/activation.h"
#include "attend/kernels/norm_rope/norm.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/norm_rope/rows.h"

namespace attend {
namespace {

// Of residual, x, qkv, attended, gate_up, mlp and logit_rows.
std::array<int64_t, 7> activation_widths(const ModelConfig& config) {
  const int64_t head_features = config.head_dim;
  return {config.hidden_size,
          config.hidden_size,
          (config.num_q_heads + 2 * config.num_kv_heads) * head_features,
          config.num_q_heads * head_features,
          2 * int64_t{config.intermediate_size},
          config.intermediate_size,
          config.hidden_size};
}

// Of a token: sums of squares with which a product begins the norm behind it. Only GPUs have such products.
int64_t num_squares(const ModelConfig& config, Device device) {
  return device.type == DeviceType::kCuda ? config.hidden_size / kernels::kNormSquares : 0;
}

}  // namespace

double activation_bytes(const ModelConfig& config, int max_tokens, DType dtype, Device device) {
  double features = 0.0;
  for (const int64_t width : activation_widths(config)) features += static_cast<double>(width);
  const double squares_bytes = static_cast<double>(num_squares(config, device)) * sizeof(float);
  return max_tokens * (features * static_cast<double>(size_of(dtype)) + squares_bytes);
}

DecoderModel::DecoderModel(ModelConfig config, DecoderWeights weights, size_t weight_bytes,
                           const ModelPlacement& placement, std::optional<ModelWeights> files)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      weight_bytes_(weight_bytes),
      placement_(placement),
      on_gpu_(placement.device.type == DeviceType::kCuda),
      files_(std::move(files)),
      attention_layers_(config_.geometry(placement.dtype, placement.dtype).layers) {}

void DecoderModel::check_weights() const {
  if (files_) files_->check_unchanged();
}

void DecoderModel::prepare(const BatchLimits& limits) {
  require(limits.max_tokens >= 1 && limits.max_kv_tokens >= 1, "limits of ", limits.max_tokens,
          " tokens a step and ", limits.max_kv_tokens, " of K/V: a model needs at least 1 of each");
  const auto widths = activation_widths(config_);
  const size_t element_bytes = size_of(placement_.dtype);
  size_t total_bytes = 0;
  for (const int64_t width : widths)
    total_bytes += Arena::padded_bytes(static_cast<size_t>(limits.max_tokens * width) * element_bytes);
  const size_t workspace_bytes = kernels::linear_workspace_bytes(
      limits.max_tokens, *std::max_element(widths.begin(), widths.end()), placement_.device);
  const int64_t squares_of_token = num_squares(config_, placement_.device);
  total_bytes +=
      Arena::padded_bytes(workspace_bytes) +
      Arena::padded_bytes(static_cast<size_t>(limits.max_tokens * squares_of_token) * sizeof(float));
  arena_.emplace(total_bytes, "activations", placement_.device);
  TensorView* const views[] = {
      &activations_.residual, &activations_.x,   &activations_.qkv, &activations_.attended,
      &activations_.gate_up,  &activations_.mlp, &logit_rows_};
  for (size_t i = 0; i < std::size(widths); ++i)
    *views[i] = arena_->allocate({limits.max_tokens, widths[i]}, placement_.dtype);
  activations_.squares = arena_->allocate({limits.max_tokens, squares_of_token}, DType::kF32);
  dense_workspace_ = {};
  if (workspace_bytes > 0) {
    const TensorView workspace = arena_->allocate({static_cast<int64_t>(workspace_bytes)}, DType::kU8);
    dense_workspace_ = {static_cast<std::byte*>(workspace.data), workspace_bytes};
  }
  limits_ = limits;
  const int64_t num_positions = std::min<int64_t>(config_.max_context_len(), limits.max_kv_tokens);
  rope_.emplace(config_.rope, static_cast<int>(num_positions), limits.max_tokens, placement_.device);
}

DecoderModel::Activations DecoderModel::Activations::first(int64_t num_tokens) const {
  return {.residual = residual.slice(0, 0, num_tokens),
          .x = x.slice(0, 0, num_tokens),
          .qkv = qkv.slice(0, 0, num_tokens),
          .attended = attended.slice(0, 0, num_tokens),
          .gate_up = gate_up.slice(0, 0, num_tokens),
          .mlp = mlp.slice(0, 0, num_tokens),
          .squares = squares.slice(0, 0, num_tokens)};
}

void DecoderModel::check(const ModelInput& input, const ForwardBatch& batch, const TensorView& logits) const {
  ensure(rope_.has_value(), "forward() of a model before prepare()");
  require(batch.num_tokens >= 0 && batch.num_tokens <= limits_.max_tokens, "num_tokens ", batch.num_tokens,
          ": the model was prepared for at most ", limits_.max_tokens);
  require(std::ssize(input.token_ids) == batch.num_tokens, "token_ids: ", input.token_ids.size(),
          " for a batch of ", batch.num_tokens, " tokens");
  require(std::ssize(input.logit_rows) <= batch.num_tokens, "logit_rows: ", input.logit_rows.size(),
          " for a batch of ", batch.num_tokens, " tokens");
  if (input.logit_rows.empty()) return;
  require(logits.dtype == DType::kF32 && logits.rank == 2 &&
              logits.shape[0] == std::ssize(input.logit_rows) && logits.shape[1] == config_.vocab_size,
          "logits ", logits, ": expected float32[", input.logit_rows.size(), ", ", config_.vocab_size, "]");
}

void DecoderModel::forward(const ModelInput& input, const ForwardBatch& batch, AttentionBackend& attention,
                           const TensorView& logits, Stream& stream) {
  check(input, batch, logits);
  if (batch.num_tokens == 0) return;
  Activations a = activations_.first(batch.num_tokens);
  const RopeRows rope = rope_->rows(batch, input.prompt_lens, stream);

  kernels::embedding(input.token_ids, weights_.embedding, a.residual, stream);
  const std::vector<DecoderLayerWeights>& layers = weights_.layers;
  a.norm = residual_norm(layers.front().attention_norm, a);
  for (size_t i = 0; i < layers.size(); ++i) {
    const DecoderLayerWeights& layer = layers[i];
    if (!on_gpu_) norm(layer.attention_norm, /*first=*/i == 0, a, stream);
    self_attention(layer, attention_layers_[i], rope, a, batch, attention, stream);
    if (!on_gpu_) norm(layer.mlp_norm, /*first=*/false, a, stream);
    feed_forward(layer, i + 1 < layers.size() ? layers[i + 1].attention_norm : weights_.final_norm, a,
                 stream);
  }
  if (input.logit_rows.empty()) return;
  const Tensor& lm_head = weights_.lm_head.view().empty() ? weights_.embedding : weights_.lm_head;
  if (on_gpu_) {
    const TensorView rows = logit_rows(input, a.residual, stream);
    // Of rows that were gathered nobody has begun the norm.
    const kernels::InputNorm gathered_norm{
        .weight = weights_.final_norm, .eps = config_.rms_norm_eps, .normed = a.x.slice(0, 0, rows.shape[0])};
    kernels::linear({.x = rows,
                     .weight = lm_head,
                     .bias = {},
                     .out = logits,
                     .batch_invariant = placement_.batch_invariant,
                     .norm = rows.data == a.residual.data ? a.norm : gathered_norm},
                    stream);
  } else {
    norm(weights_.final_norm, /*first=*/false, a, stream);
    project(logit_rows(input, a.x, stream), {.weight = lm_head, .bias = {}}, logits, stream);
  }
}

TensorView DecoderModel::logit_rows(const ModelInput& input, const TensorView& x, Stream& stream) const {
  const int64_t num_rows = std::ssize(input.logit_rows);
  if (num_rows == x.shape[0]) return x;
  const TensorView rows = logit_rows_.slice(0, 0, num_rows);
  kernels::gather_rows(x, input.logit_rows, rows, stream);
  return rows;
}

void DecoderModel::norm(const Tensor& weight, bool first, const Activations& a, Stream& stream) const {
  if (first)
    kernels::rms_norm(a.residual, weight, config_.rms_norm_eps, a.x, stream);
  else
    kernels::add_rms_norm(a.x, a.residual, weight, config_.rms_norm_eps, a.x, stream);
}

kernels::InputNorm DecoderModel::residual_norm(const Tensor& weight, const Activations& a) const {
  return {.weight = weight, .eps = config_.rms_norm_eps, .normed = a.x, .squares = a.squares};
}

void DecoderModel::add_projection(const TensorView& x, const Projection& projection, const Tensor& next_norm,
                                  Activations& a, Stream& stream) const {
  if (!on_gpu_) return project(x, projection, a.x, stream);
  a.norm = residual_norm(next_norm, a);
  kernels::linear({.x = x,
                   .weight = projection.weight,
                   .bias = projection.bias,
                   .out = a.residual,
                   .batch_invariant = placement_.batch_invariant,
                   .accumulate = true,
                   .next_norm = &a.norm},
                  stream);
}

void DecoderModel::project(const TensorView& x, const Projection& projection, const TensorView& out,
                           Stream& stream) const {
  kernels::linear({.x = x,
                   .weight = projection.weight,
                   .bias = projection.bias,
                   .out = out,
                   .workspace = dense_workspace_,
                   .batch_invariant = placement_.batch_invariant},
                  stream);
}

void DecoderModel::self_attention(const DecoderLayerWeights& weights, const AttentionLayer& layer,
                                  const RopeRows& rope, Activations& a, const ForwardBatch& batch,
                                  AttentionBackend& attention, Stream& stream) const {
  const int64_t head_dim = config_.head_dim;
  const int64_t k_begin = config_.num_q_heads * head_dim;
  const int64_t v_begin = k_begin + config_.num_kv_heads * head_dim;
  const TensorView q = a.qkv.slice(1, 0, k_begin);
  const TensorView k = a.qkv.slice(1, k_begin, v_begin);
  const TensorView v = a.qkv.slice(1, v_begin, a.qkv.shape[1]);
  const kernels::LinearArgs qkv{.x = a.residual,
                                .weight = weights.qkv.weight,
                                .bias = weights.qkv.bias,
                                .out = a.qkv,
                                .batch_invariant = placement_.batch_invariant,
                                .norm = a.norm};
  if (!on_gpu_) {
    project(a.x, weights.q, q, stream);
    project(a.x, weights.k, k, stream);
    project(a.x, weights.v, v, stream);
  }

  const TensorView q_heads = q.split(1, head_dim), k_heads = k.split(1, head_dim);
  const kernels::NormRopeArgs norm_rope{.q = q_heads,
                                        .k = k_heads,
                                        .q_norm = weights.q_norm,
                                        .k_norm = weights.k_norm,
                                        .eps = config_.rms_norm_eps,
                                        .positions = rope.positions,
                                        .cos = rope.cos,
                                        .sin = rope.sin};

  AttentionInput input;
  input.q = q_heads;
  input.k = k_heads;
  input.v = v.split(1, head_dim);
  input.out = a.attended.split(1, head_dim);
  input.rope = &norm_rope;
  if (on_gpu_) input.qkv = &qkv;
  attention.forward(layer, input, batch, stream);
  add_projection(a.attended, weights.o, weights.mlp_norm, a, stream);
}

void DecoderModel::feed_forward(const DecoderLayerWeights& weights, const Tensor& next_norm, Activations& a,
                                Stream& stream) const {
  const int64_t intermediate = config_.intermediate_size;
  if (on_gpu_) {
    kernels::gated_linear({.x = a.residual,
                           .weight = weights.gate_up.weight,
                           .bias = weights.gate_up.bias,
                           .gate_up = a.gate_up,
                           .out = a.mlp,
                           .batch_invariant = placement_.batch_invariant,
                           .norm = a.norm},
                          stream);
  } else {
    project(a.x, weights.gate, a.gate_up.slice(1, 0, intermediate), stream);
    project(a.x, weights.up, a.gate_up.slice(1, intermediate, 2 * intermediate), stream);
    kernels::silu_mul(a.gate_up, a.mlp, stream);
  }
  add_projection(a.mlp, weights.down, next_norm, a, stream);
}

}  // namespace attend
