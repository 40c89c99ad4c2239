// GptOssForCausalLM: sinks, biases for all projections, a window in every other layer, and experts with a
// clamped SwiGLU in every layer. Its hidden_act does not describe the experts' activation.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

constexpr int kOriginalLength = 4096;

// Default of transformers for a config without rope fields.
RopeConfig default_rope(const JsonNode& json, int head_dim) {
  return {.type = RopeType::kYarn,
          .theta = json.find_positive("rope_theta").value_or(150000.0),
          .factor = 32.0,
          .rotary_dim = head_dim,
          .original_max_position_embeddings = kOriginalLength,
          .beta_fast = 32.0,
          .beta_slow = 1.0,
          .truncate = false};
}

void read_gpt_oss_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  const bool has_rope_config = json.has("rope_scaling") || json.has("rope_parameters");
  spec.ropes = {has_rope_config ? read_rope(json, head_dim, spec.max_position_embeddings, defaults.rope)
                                : default_rope(json, head_dim)};
}

void read_gpt_oss_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", true);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.sinks = true;
  });
  read_alternating_windows(json, /*full_every=*/2, /*sliding_window=*/128, spec);

  MoeMlpSpec mlp = read_moe_mlp(json, {.num_experts = 128,
                                       .top_k = 4,
                                       .top_k_alias = "experts_per_token",
                                       .intermediate_key = "intermediate_size",
                                       .intermediate_size = 2880});
  mlp.gate = {.activation = kernels::ExpertActivation::kClampedSwiglu,
              .limit = static_cast<float>(json.find_positive("swiglu_limit").value_or(7.0)),
              .alpha = static_cast<float>(json.find_positive("swiglu_alpha").value_or(1.702))};
  mlp.router_bias = mlp.expert_bias = mlp.fused_experts = true;
  for (LayerSpec& layer : spec.layers) layer.mlp = mlp;
}

}  // namespace

constinit const ModelArchitecture kGptOss{.name = "GptOssForCausalLM",
                                          .models = "gpt-oss-20b, 120b",
                                          .read_layers = read_gpt_oss_layers,
                                          .read_config = read_gpt_oss_config,
                                          .defaults = {.vocab_size = 201088,
                                                       .hidden_size = 2880,
                                                       .intermediate_size = 2880,
                                                       .num_layers = 36,
                                                       .num_q_heads = 64,
                                                       .num_kv_heads = 8,
                                                       .head_dim = 64,
                                                       .max_position_embeddings = 131072,
                                                       .norm_eps = 1e-5,
                                                       .rope = {.theta = 150000.0}},
                                          .aux_ids = AuxIds::kInputsUpToLast,
                                          .names = {.router = "mlp.router"}};

}  // namespace attend
