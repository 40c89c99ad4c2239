// Architectures of the OLMo models.
#include <algorithm>

#include "attend/base/error.h"
#include "attend/model/architectures/hybrid/gated_delta.h"

namespace attend {

// Olmo2ForCausalLM: Llama with norms after sublayers instead of before, and norms over all heads of q and k.
namespace {

void read_olmo2_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kToken;
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = false, .after = true};
}

}  // namespace

constinit const ModelArchitecture kOlmo2{.name = "Olmo2ForCausalLM",
                                         .models = "OLMo 2",
                                         .read_config = read_olmo2_config,
                                         .defaults = {.norm_eps = 1e-5}};

// Olmo3ForCausalLM: OLMo 2 with a window in three of four layers. RoPE scaling does not apply to these
// layers.
namespace {

// Indices into spec.ropes.
constexpr int kOlmo3Full = 0, kOlmo3Sliding = 1;
constexpr int kOlmo3Window = 4096, kOlmo3FullEvery = 4;
constexpr double kOlmo3Theta = 500000.0;

void read_olmo3_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  read_alternating_windows(json, kOlmo3FullEvery, kOlmo3Window, spec);
  const double theta = json.find_positive("rope_theta").value_or(kOlmo3Theta);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  const LayerRopes ropes = read_layer_ropes(json, {.full = head_dim, .sliding = head_dim},
                                            spec.max_position_embeddings, {.theta = theta}, {.theta = theta});
  spec.ropes = {ropes.full, ropes.sliding};
}

void read_olmo3_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kToken;
    attention.rope_set = attention.window_left >= 0 ? kOlmo3Sliding : kOlmo3Full;
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = false, .after = true};
}

}  // namespace

constinit const ModelArchitecture kOlmo3{.name = "Olmo3ForCausalLM",
                                         .models = "OLMo 3",
                                         .read_layers = read_olmo3_layers,
                                         .read_config = read_olmo3_config,
                                         .defaults = {.norm_eps = 1e-5}};

// OlmoHybridForCausalLM: gated delta nets with norms before sublayers in most layers, those of OLMo 2 in the
// others. If rope_theta is null, as in published models, there is no RoPE.
namespace {

GatedDeltaSpec read_olmo_delta(const JsonNode& json, int num_heads, int hidden_size) {
  const int num_k_heads = json.find_integer("linear_num_key_heads", 1, 1 << 12).value_or(num_heads);
  const int missing_dim = std::max(1, static_cast<int>(int64_t{3} * hidden_size / (4 * num_k_heads)));
  const int head_dim_k = json.find_integer("linear_key_head_dim", 1, 1 << 12).value_or(missing_dim);
  return read_gated_delta(json, {.num_k_heads = num_heads,
                                 .num_v_heads = num_heads,
                                 .head_dim_k = head_dim_k,
                                 .head_dim_v = 2 * head_dim_k,
                                 .beta_scale = json.boolean_or("linear_allow_neg_eigval", true) ? 2.0f : 1.0f,
                                 .norm_eps = 1e-5f});
}

void read_olmo_hybrid_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const AttentionSpec full = std::get<AttentionSpec>(spec.layers.front().mixer);
  const JsonNode rope = json.find("rope_parameters").value_or(json);
  const bool rotates = rope.has("rope_theta") || !rope.mentions("rope_theta");
  if (rotates) spec.ropes = {read_rope(json, full.head_dim, spec.max_position_embeddings, defaults.rope)};
  const GatedDeltaSpec delta = read_olmo_delta(json, full.num_q_heads, spec.hidden_size);
  read_olmo2_config(json, spec);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.rope_set = rotates ? 0 : -1; });
  std::vector<bool> linear = read_linear_layers(json, spec.layers.size());
  // transformers' pattern has attention in the last layer if no other one has it.
  if (!json.has("layer_types") && std::ranges::find(linear, false) == linear.end()) linear.back() = false;
  for (size_t i = 0; i < linear.size(); ++i)
    if (linear[i]) spec.layers[i] = {.mixer = delta, .mlp = spec.layers[i].mlp};
}

}  // namespace

constinit const ModelArchitecture kOlmoHybrid{.name = "OlmoHybridForCausalLM",
                                              .models = "OLMo Hybrid 7B",
                                              .read_layers = read_olmo_hybrid_layers,
                                              .defaults = {.vocab_size = 100352,
                                                           .hidden_size = 3840,
                                                           .intermediate_size = 11008,
                                                           .num_layers = 32,
                                                           .num_q_heads = 30,
                                                           .max_position_embeddings = 65536},
                                              .names = {.attention_norm = "attention_layer_norm",
                                                        .mlp_norm = "feedforward_layer_norm",
                                                        .in_proj_q = "linear_attn.q_proj",
                                                        .in_proj_k = "linear_attn.k_proj",
                                                        .in_proj_v = "linear_attn.v_proj",
                                                        .in_proj_z = "linear_attn.g_proj",
                                                        .in_proj_b = "linear_attn.b_proj",
                                                        .in_proj_a = "linear_attn.a_proj",
                                                        .conv_q = "linear_attn.q_conv1d",
                                                        .conv_k = "linear_attn.k_conv1d",
                                                        .conv_v = "linear_attn.v_conv1d",
                                                        .gated_norm = "linear_attn.o_norm",
                                                        .out_proj = "linear_attn.o_proj"}};

// OlmoeForCausalLM: norms over all heads of q and k as in OLMo 2, norms before sublayers, and experts in
// every layer.
namespace {

void read_olmoe_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  const double clip = json.find_positive("clip_qkv").value_or(0.0);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qkv_clip = static_cast<float>(clip);
    attention.qk_norm = QkNormSpan::kToken;
  });
  MoeMlpSpec experts = read_moe_mlp(
      json,
      {.num_experts = 64, .top_k = 8, .intermediate_key = "intermediate_size", .intermediate_size = 2048});
  experts.rule.weights = json.boolean_or("norm_topk_prob", false) ? kernels::RouterWeights::kChosenExperts
                                                                  : kernels::RouterWeights::kAllExperts;
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

}  // namespace

constinit const ModelArchitecture kOlmoe{.name = "OlmoeForCausalLM",
                                         .models = "OLMoE",
                                         .read_config = read_olmoe_config,
                                         .defaults = {.intermediate_size = 2048, .norm_eps = 1e-5}};

}  // namespace attend
