// Decoders like Llama with LayerNorm: StableLmForCausalLM, Starcoder2ForCausalLM, NemotronForCausalLM and
// OlmoForCausalLM.
#include "attend/model/architectures/architecture.h"

namespace attend {

// StableLM: partial RoPE and, in larger models, LayerNorm of q and k heads.
namespace {

void read_stablelm_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("use_qkv_bias", false);
  const bool norms = json.boolean_or("qk_layernorm", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = bias;
    if (norms) attention.qk_norm = QkNormSpan::kHeadLayerNorm;
  });
  const bool parallel = json.boolean_or("use_parallel_residual", false);
  for (LayerSpec& layer : spec.layers) layer.norms = {.parallel = parallel, .shared = parallel};
}

}  // namespace

constinit const ModelArchitecture kStableLm{
    .name = "StableLmForCausalLM",
    .models = "StableLM 3B, StableLM 2",
    .read_config = read_stablelm_config,
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 2560,
                 .intermediate_size = 6912,
                 .num_layers = 32,
                 .num_q_heads = 32,
                 .num_kv_heads = 32,
                 .max_position_embeddings = 4096,
                 .norm_eps = 1e-5,
                 .rope = {.partial_rotary_factor = 0.25},
                 .keys = {.norm_eps = "layer_norm_eps"},
                 .norm_kind = kernels::NormKind::kLayer,
                 .norm_biases = true},
    .names = {.q_norm = "self_attn.q_layernorm.norms.*", .k_norm = "self_attn.k_layernorm.norms.*"}};

// StarCoder 2: an MLP without a gate, biases and a window.
namespace {

void read_starcoder2_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("use_bias", true);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = bias;
    std::get<PlainMlpSpec>(layer.mlp).bias = bias;
  }
  if (json.has("sliding_window")) read_windows(json, std::vector<bool>(spec.layers.size(), true), spec);
}

}  // namespace

constinit const ModelArchitecture kStarcoder2{.name = "Starcoder2ForCausalLM",
                                              .models = "StarCoder 2",
                                              .read_layers = read_plain_layers,
                                              .read_config = read_starcoder2_config,
                                              .defaults = {.vocab_size = 49152,
                                                           .hidden_size = 3072,
                                                           .intermediate_size = 12288,
                                                           .num_layers = 30,
                                                           .num_q_heads = 24,
                                                           .num_kv_heads = 2,
                                                           .max_position_embeddings = 4096,
                                                           .norm_eps = 1e-5,
                                                           .tie_word_embeddings = true,
                                                           .activation = "gelu_pytorch_tanh",
                                                           .keys = {.norm_eps = "norm_epsilon"},
                                                           .norm_kind = kernels::NormKind::kLayer,
                                                           .norm_biases = true},
                                              .names = {.up_proj = "mlp.c_fc", .down_proj = "mlp.c_proj"}};

// Nemotron-4: squared ReLU without a gate, partial RoPE, and norms that multiply by 1 + weight.
namespace {

void read_nemotron_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention.output_bias = bias;
    std::get<PlainMlpSpec>(layer.mlp).bias = mlp_bias;
  }
  spec.zero_centered_norms = true;
}

}  // namespace

constinit const ModelArchitecture kNemotron{.name = "NemotronForCausalLM",
                                            .models = "Nemotron-4, Minitron",
                                            .read_layers = read_plain_layers,
                                            .read_config = read_nemotron_config,
                                            .defaults = {.vocab_size = 256000,
                                                         .hidden_size = 6144,
                                                         .intermediate_size = 24576,
                                                         .num_layers = 32,
                                                         .num_q_heads = 48,
                                                         .max_position_embeddings = 4096,
                                                         .norm_eps = 1e-5,
                                                         .rope = {.partial_rotary_factor = 0.5},
                                                         .activation = "relu2",
                                                         .keys = {.norm_eps = "norm_eps"},
                                                         .norm_kind = kernels::NormKind::kLayer,
                                                         .norm_biases = true}};

// OLMo: norms without weights, and clipped q, k and v.
namespace {

void read_olmo_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  const double clip = json.find_positive("clip_qkv").value_or(0.0);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qkv_clip = static_cast<float>(clip);
  });
  spec.norm_weights = false;
  spec.norm_eps = 1e-5f;  // a constant of the model
}

}  // namespace

constinit const ModelArchitecture kOlmo{.name = "OlmoForCausalLM",
                                        .models = "OLMo 1",
                                        .read_config = read_olmo_config,
                                        .defaults = {.vocab_size = 50304,
                                                     .hidden_size = 4096,
                                                     .intermediate_size = 11008,
                                                     .num_layers = 32,
                                                     .num_q_heads = 32,
                                                     .max_position_embeddings = 2048,
                                                     .norm_eps = 1e-5,
                                                     .norm_kind = kernels::NormKind::kLayer}};

}  // namespace attend
