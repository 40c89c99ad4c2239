// Architectures of the HunYuan models. HunYuanDenseV1ForCausalLM: Llama with norms of q and k heads after
// RoPE. HunYuanMoEV1ForCausalLM has experts and a shared one in every layer. HYV3ForCausalLM has norms before
// RoPE, and the experts of DeepSeek-V3.
#include <cmath>

#include "attend/base/error.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

// With a fixed alpha, rope type "dynamic" does not depend on a length: it has a base of
// theta alpha^(d / (d - 2)).
void read_hunyuan_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto scaling = json.find(key);
    if (!scaling || !scaling->has("alpha")) continue;
    expect_string(*scaling, scaling->has("rope_type") ? "rope_type" : "type", "dynamic");
    const double theta =
        scaling->find_positive("rope_theta").value_or(json.find_positive("rope_theta").value_or(10000.0));
    const double alpha = scaling->positive("alpha");
    spec.ropes = {{.theta = theta * std::pow(alpha, head_dim / (head_dim - 2.0)), .rotary_dim = head_dim}};
    return;
  }
  spec.ropes = {read_rope(json, head_dim, spec.max_position_embeddings, defaults.rope)};
}

void read_hunyuan_config(const JsonNode& json, ModelSpec& spec) {
  reject_flag(json, "use_cla", "K and V of another layer in HunYuan");
  if (!json.boolean_or("use_qk_norm", true)) json.reject("use_qk_norm", "true, as transformers assumes");
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kHeadAfterRopeWeighted;
  });
}

void read_hunyuan_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_hunyuan_config(json, spec);
  const auto top_k = json.find("moe_topk");
  const bool by_layer = top_k && top_k->value().is_array();
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 1,
                                           .top_k = 1,
                                           .top_k_alias = by_layer ? "" : "moe_topk",
                                           .intermediate_key = "intermediate_size"});
  experts.shared_intermediate_size = experts.intermediate_size;
  if (by_layer && top_k->array_size() != spec.layers.size())
    top_k->reject("a number of experts, or one for each of the layers");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (by_layer) experts.top_k = top_k->at(i).integer(1, std::min(experts.num_experts, 32));
    spec.layers[i].mlp = experts;
  }
}

void read_hy_v3_config(const JsonNode& json, ModelSpec& spec) {
  reject_flag(json, "mlp_bias", "biases of shared experts");
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.qk_norm = QkNormSpan::kHead;
  });
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 192, .top_k = 8, .intermediate_size = 1536});
  experts.rule.scores = kernels::RouterScores::kSigmoid;
  experts.rule.scale = static_cast<float>(json.find_positive("router_scaling_factor").value_or(2.826));
  experts.correction = true;
  const int num_shared = json.find_integer("num_shared_experts", 1, 1 << 8).value_or(1);
  experts.shared_intermediate_size = num_shared * experts.intermediate_size;
  set_sparse_mlps(read_dense_mlps(json, spec.layers.size(), 1), experts, spec);
}

constexpr DecoderNames kHunYuanNames{.q_norm = "self_attn.query_layernorm",
                                     .k_norm = "self_attn.key_layernorm",
                                     .router = "mlp.gate.wg",
                                     .shared_gate_proj = "mlp.shared_mlp.gate_proj",
                                     .shared_up_proj = "mlp.shared_mlp.up_proj",
                                     .shared_down_proj = "mlp.shared_mlp.down_proj"};

}  // namespace

constinit const ModelArchitecture kHunYuanDenseV1{.name = "HunYuanDenseV1ForCausalLM",
                                                  .models = "HunYuan 0.5B to 7B",
                                                  .read_layers = read_hunyuan_layers,
                                                  .read_config = read_hunyuan_config,
                                                  .defaults = {.intermediate_size = 11008, .norm_eps = 1e-5},
                                                  .names = kHunYuanNames};

constinit const ModelArchitecture kHunYuanMoeV1{.name = "HunYuanMoEV1ForCausalLM",
                                                .models = "HunYuan-A13B",
                                                .read_layers = read_hunyuan_layers,
                                                .read_config = read_hunyuan_moe_config,
                                                .defaults = {.intermediate_size = 11008, .norm_eps = 1e-5},
                                                .names = kHunYuanNames};

constinit const ModelArchitecture kHyV3{.name = "HYV3ForCausalLM",
                                        .models = "Hy3",
                                        .read_config = read_hy_v3_config,
                                        .defaults = {.intermediate_size = 13312,
                                                     .num_kv_heads = 8,
                                                     .head_dim = 128,
                                                     .norm_eps = 1e-5,
                                                     .rope = {.theta = 11158840.0}},
                                        .predicts_more_tokens = true,
                                        .names = {.router = "mlp.router.gate",
                                                  .router_correction = "mlp.expert_bias",
                                                  .shared_gate_proj = "mlp.shared_mlp.gate_proj",
                                                  .shared_up_proj = "mlp.shared_mlp.up_proj",
                                                  .shared_down_proj = "mlp.shared_mlp.down_proj"}};

}  // namespace attend
