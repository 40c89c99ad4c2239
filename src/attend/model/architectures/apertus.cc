// ApertusForCausalLM: norms of q and k heads, and an MLP without a gate whose activation, xIELU, has
// parameters.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// Default of transformers for a config without RoPE scaling.
RopeConfig default_apertus_rope(const JsonNode& json, int head_dim) {
  return {.type = RopeType::kLlama3,
          .theta = json.find_positive("rope_theta").value_or(12e6),
          .factor = 8.0,
          .rotary_dim = head_dim,
          .original_max_position_embeddings = 8192,
          .low_freq_factor = 1.0,
          .high_freq_factor = 4.0};
}

void read_apertus_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  read_plain_layers(json, defaults, spec);
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kHead;
  });
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  if (!json.has("rope_scaling") && !json.has("rope_parameters"))
    spec.ropes = {default_apertus_rope(json, head_dim)};
}

}  // namespace

constinit const ModelArchitecture kApertus{
    .name = "ApertusForCausalLM",
    .models = "Apertus 8B, 70B",
    .read_layers = read_apertus_layers,
    .defaults = {.vocab_size = 131072,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .num_layers = 32,
                 .num_q_heads = 32,
                 .max_position_embeddings = 65536,
                 .norm_eps = 1e-5,
                 .rope = {.theta = 12e6},
                 .activation = "xielu"},
    .names = {.attention_norm = "attention_layernorm", .mlp_norm = "feedforward_layernorm"}};

}  // namespace attend
