// ModelArchitecture: what one Hugging Face architecture adds to the common decoder, as data and one function.
//
// A new dense architecture is a file in architectures/ that defines such a record, and a line in the table.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "attend/model/json.h"
#include "attend/model/model_spec.h"

namespace attend {

// What the weights are called: "<layers>.<layer><part>.weight" and, where there is one, ".bias".
struct DecoderNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view layers = "model.layers";
  std::string_view final_norm = "model.norm";
  std::string_view lm_head = "lm_head";
  std::string_view attention_norm = "input_layernorm";
  std::string_view q_proj = "self_attn.q_proj";
  std::string_view k_proj = "self_attn.k_proj";
  std::string_view v_proj = "self_attn.v_proj";
  std::string_view o_proj = "self_attn.o_proj";
  std::string_view q_norm = "self_attn.q_norm";
  std::string_view k_norm = "self_attn.k_norm";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view gate_proj = "mlp.gate_proj";
  std::string_view up_proj = "mlp.up_proj";
  std::string_view down_proj = "mlp.down_proj";
};

struct ModelArchitecture {
  std::string_view name;
  // Fills in what config.json's fields mean for this architecture: biases, norms, windows. The common fields
  // are read already: every layer is the same attention, without a window, and the same gated MLP.
  void (*read_config)(const JsonNode& json, ModelSpec& spec) = nullptr;
  int default_num_kv_heads = 0;  // when the field is absent; 0: num_q_heads
  int default_head_dim = 0;      // when the field is absent; 0: hidden_size / num_q_heads
  DecoderNames names;
};

extern const ModelArchitecture kLlama;
extern const ModelArchitecture kMistral;
extern const ModelArchitecture kQwen2;
extern const ModelArchitecture kQwen3;
extern const ModelArchitecture kSeedOss;

// Throws Error(kUnsupported) with the known ones; `where` is the place that named it, for the message.
const ModelArchitecture& find_architecture(std::string_view name, const std::string& where);

// sliding_window as window_left of the layers that layer_types (or, without it, max_window_layers) gives one,
// when use_sliding_window is true: how the Qwen models say it.
void read_layer_windows(const JsonNode& json, ModelSpec& spec);

// For read_config(): changes what all layers have alike.
void for_each_attention(ModelSpec& spec, const std::function<void(AttentionSpec&)>& change);
void set_mlp_bias(ModelSpec& spec, bool bias);

}  // namespace attend
