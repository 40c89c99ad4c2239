#include "attend/model/decoder_weights.h"

#include <utility>

namespace attend {
namespace {

// Writes slots under a common prefix.
class SlotWriter {
 public:
  SlotWriter(std::string prefix, std::vector<WeightSlot>& slots)
      : prefix_(std::move(prefix)), slots_(slots) {}

  void norm(std::string_view part, int64_t size, Tensor& weight) {
    slots_.push_back({name(part, ".weight"), {size}, &weight, true});
  }
  void matrix(std::string_view part, int64_t rows, int64_t columns, Tensor& weight) {
    slots_.push_back({name(part, ".weight"), {rows, columns}, &weight});
  }
  void projection(std::string_view part, int64_t out_features, int64_t in_features, bool bias,
                  Projection& into) {
    matrix(part, out_features, in_features, into.weight);
    if (bias) slots_.push_back({name(part, ".bias"), {out_features}, &into.bias});
  }

 private:
  std::string name(std::string_view part, std::string_view kind) const {
    return prefix_ + std::string(part) + std::string(kind);
  }

  std::string prefix_;
  std::vector<WeightSlot>& slots_;
};

void write_layer(const ModelConfig& config, const DecoderNames& names, SlotWriter slots,
                 DecoderLayerWeights& layer) {
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t q_features = int64_t{config.num_q_heads} * config.head_dim;
  const int64_t kv_features = int64_t{config.num_kv_heads} * config.head_dim;
  slots.norm(names.attention_norm, hidden, layer.attention_norm);
  slots.projection(names.q_proj, q_features, hidden, config.attention_bias, layer.q);
  slots.projection(names.k_proj, kv_features, hidden, config.attention_bias, layer.k);
  slots.projection(names.v_proj, kv_features, hidden, config.attention_bias, layer.v);
  if (config.qk_norm) {
    slots.norm(names.q_norm, config.head_dim, layer.q_norm);
    slots.norm(names.k_norm, config.head_dim, layer.k_norm);
  }
  slots.projection(names.o_proj, hidden, q_features, config.attention_output_bias, layer.o);
  slots.norm(names.mlp_norm, hidden, layer.mlp_norm);
  slots.projection(names.gate_proj, intermediate, hidden, config.mlp_bias, layer.gate);
  slots.projection(names.up_proj, intermediate, hidden, config.mlp_bias, layer.up);
  slots.projection(names.down_proj, hidden, intermediate, config.mlp_bias, layer.down);
}

}  // namespace

std::vector<WeightSlot> weight_slots(const ModelConfig& config, const DecoderNames& names, bool with_lm_head,
                                     DecoderWeights& weights) {
  std::vector<WeightSlot> slots;
  SlotWriter top("", slots);
  top.matrix(names.embedding, config.vocab_size, config.hidden_size, weights.embedding);
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < weights.layers.size(); ++i)
    write_layer(config, names, SlotWriter(std::string(names.layers) + "." + std::to_string(i) + ".", slots),
                weights.layers[i]);
  top.norm(names.final_norm, config.hidden_size, weights.final_norm);
  if (with_lm_head) top.matrix(names.lm_head, config.vocab_size, config.hidden_size, weights.lm_head);
  return slots;
}

}  // namespace attend
