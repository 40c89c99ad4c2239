// Architectures of the GLM models, and of dots1 with the same design.
#include "attend/model/architectures/architecture.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {

// GlmForCausalLM: Llama with interleaved RoPE in half of each head, gate and up in one tensor, and biases for
// q, k and v.
namespace {

void read_glm_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", true);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.qkv_bias = bias; });
  for_each_gated_mlp(spec, [](GatedMlpSpec& mlp) { mlp.fused_gate_up = true; });
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
}

}  // namespace

constinit const ModelArchitecture kGlm{
    .name = "GlmForCausalLM",
    .models = "GLM-4-9B",
    .read_config = read_glm_config,
    .defaults = {
        .num_kv_heads = 2, .head_dim = 128, .norm_eps = 1.5625e-7, .rope = {.partial_rotary_factor = 0.5}}};

// Glm4ForCausalLM: norms before and after each sublayer, interleaved RoPE in half of each head, gate and up
// in one tensor, and biases for q, k and v.
namespace {

void read_glm4_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", true);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.qkv_bias = bias; });
  for_each_gated_mlp(spec, [](GatedMlpSpec& mlp) { mlp.fused_gate_up = true; });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = true, .after = true};
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
}

}  // namespace

constinit const ModelArchitecture kGlm4{
    .name = "Glm4ForCausalLM",
    .models = "GLM-4-0414",
    .read_config = read_glm4_config,
    .defaults = {.num_kv_heads = 2,
                 .head_dim = 128,
                 .norm_eps = 1.5625e-7,
                 .rope = {.partial_rotary_factor = 0.5}},
    .names = {.attention_post_norm = "post_self_attn_layernorm", .mlp_post_norm = "post_mlp_layernorm"}};

// Glm4MoeForCausalLM (GLM-4.5, 4.6) and Dots1ForCausalLM: grouped-query attention with the experts of
// DeepSeek-V3. Glm4MoeLiteForCausalLM (GLM-4.7-Flash): DeepSeek-V3's latent attention and experts.
namespace {

void read_glm4_moe_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  const bool norms = json.boolean_or("use_qk_norm", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = bias;
    if (norms) attention.qk_norm = QkNormSpan::kHead;
  });
  read_corrected_experts(json,
                         {.intermediate_size = 10944,
                          .moe_intermediate_size = 1408,
                          .num_experts = 128,
                          .top_k = 8,
                          .num_shared_experts = 1,
                          .first_dense_layers = 1,
                          .routed_scale = 1.0f},
                         /*normalized=*/true, spec);
}

// Sets windows for the sliding layers of layer_types, or for the layers from max_window_layers on.
void read_dots1_windows(const JsonNode& json, ModelSpec& spec) {
  if (json.mentions("sliding_window") && !json.has("sliding_window")) return;
  const auto first = static_cast<size_t>(json.find_integer("max_window_layers", 0, 1 << 30).value_or(62));
  std::vector<bool> slides(spec.layers.size(), false);
  for (size_t i = first; i < slides.size(); ++i) slides[i] = true;
  if (const auto types = json.find("layer_types")) slides = read_layer_types(*types, spec.num_layers());
  read_windows(json, slides, spec);
}

void read_dots1_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kHead;
  });
  read_dots1_windows(json, spec);
  read_corrected_experts(json,
                         {.intermediate_size = 10944, .moe_intermediate_size = 1408, .routed_scale = 1.0f},
                         /*normalized=*/false, spec);
}

constexpr DeepseekDefaults kGlm4MoeLiteDefaults{.num_layers = 47,
                                                .num_heads = 20,
                                                .intermediate_size = 10240,
                                                .q_lora_rank = 768,
                                                .moe_intermediate_size = 1536,
                                                .num_experts = 64,
                                                .top_k = 4,
                                                .num_shared_experts = 1,
                                                .first_dense_layers = 1,
                                                .routed_scale = 1.8f,
                                                .nope_dim = 192,
                                                .v_dim = 256};

void read_glm4_moe_lite_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  read_latent_layers(json, kGlm4MoeLiteDefaults, spec);
  read_corrected_experts(json, kGlm4MoeLiteDefaults, /*normalized=*/true, spec);
}

}  // namespace

constinit const ModelArchitecture kGlm4Moe{.name = "Glm4MoeForCausalLM",
                                           .models = "GLM-4.5, GLM-4.6",
                                           .read_config = read_glm4_moe_config,
                                           .defaults = {.intermediate_size = 10944,
                                                        .num_kv_heads = 8,
                                                        .norm_eps = 1e-5,
                                                        .rope = {.partial_rotary_factor = 0.5}},
                                           .predicts_more_tokens = true,
                                           .prediction = &kGlm4MoePrediction};

constinit const ModelArchitecture kDots1{.name = "Dots1ForCausalLM",
                                         .models = "dots.llm1",
                                         .read_config = read_dots1_config,
                                         .defaults = {.intermediate_size = 10944, .num_kv_heads = 32}};

constinit const ModelArchitecture kGlm4MoeLite{.name = "Glm4MoeLiteForCausalLM",
                                               .models = "GLM-4.7-Flash",
                                               .read_layers = read_glm4_moe_lite_layers,
                                               .defaults = {.vocab_size = 154880,
                                                            .hidden_size = 2048,
                                                            .max_position_embeddings = 202752,
                                                            .norm_eps = 1e-5},
                                               .predicts_more_tokens = true,
                                               .prediction = &kGlm4MoeLitePrediction};

}  // namespace attend
