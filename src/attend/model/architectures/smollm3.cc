// SmolLM3ForCausalLM: Llama without RoPE in every fourth layer.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// Sets windows for the sliding layers of layer_types or, if it is absent, for the layers without RoPE.
void read_smollm3_windows(const JsonNode& json, const std::vector<bool>& rotated, ModelSpec& spec) {
  if (!json.boolean_or("use_sliding_window", false) || !json.has("sliding_window")) return;
  std::vector<bool> slides = rotated;
  slides.flip();
  if (const auto types = json.find("layer_types")) slides = read_layer_types(*types, spec.num_layers());
  read_windows(json, slides, spec);
}

void read_smollm3_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  const std::vector<bool> rotated = read_rotated_layers(json, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    attention.qkv_bias = attention.output_bias = bias;
    if (!rotated[i]) attention.rope_set = -1;
  }
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
  read_smollm3_windows(json, rotated, spec);
}

}  // namespace

constinit const ModelArchitecture kSmolLm3{
    .name = "SmolLM3ForCausalLM",
    .models = "SmolLM 3",
    .read_config = read_smollm3_config,
    .defaults = {.num_kv_heads = 4, .tie_word_embeddings = true, .rope = {.theta = 2000000.0}}};

}  // namespace attend
