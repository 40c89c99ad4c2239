// MiniCPM3ForCausalLM: DeepSeek-V2's latent attention with dense MLPs, and scaled embeddings, sublayers and
// logits.
#include <cmath>

#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

void read_minicpm3_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  const DeepseekDefaults latent{
      .num_layers = 62,
      .num_heads = 40,
      .intermediate_size = 6400,
      .q_lora_rank = 768,
      .nope_dim = 64,
      .rope_dim = 32,
      .v_dim = spec.hidden_size / json.find_integer("num_attention_heads", 1, 1 << 16).value_or(40),
      .interleaved_rope = false};
  read_latent_layers(json, latent, spec);
  const GatedMlpSpec mlp = read_gated_mlp(json, defaults);
  for (LayerSpec& layer : spec.layers) layer.mlp = mlp;
}

void read_minicpm3_config(const JsonNode& json, ModelSpec& spec) {
  const auto is_null = [&](const char* key) { return json.mentions(key) && !json.has(key); };
  const double root = std::sqrt(static_cast<double>(spec.num_layers()));
  const double depth = is_null("scale_depth") ? root : json.find_positive("scale_depth").value_or(1.4);
  // Null turns a scale off; the value of an absent field is that of MiniCPM3-4B.
  const double base = is_null("dim_model_base")
                          ? spec.hidden_size
                          : json.find_integer("dim_model_base", 1, 1 << 24).value_or(256);
  set_residual_scale(depth / root, json.find_positive("scale_emb").value_or(12.0), spec);
  spec.final_logit_scale = static_cast<float>(base / spec.hidden_size);
}

}  // namespace

constinit const ModelArchitecture kMiniCpm3{.name = "MiniCPM3ForCausalLM",
                                            .models = "MiniCPM3-4B",
                                            .read_layers = read_minicpm3_layers,
                                            .read_config = read_minicpm3_config,
                                            .defaults = {.vocab_size = 73448,
                                                         .hidden_size = 2560,
                                                         .intermediate_size = 6400,
                                                         .max_position_embeddings = 32768,
                                                         .norm_eps = 1e-5,
                                                         .tie_word_embeddings = true}};

}  // namespace attend
