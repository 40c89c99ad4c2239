// LagunaForCausalLM: softplus gates of heads, numbers of heads and rotary embeddings by layer, and the
// experts of DeepSeek-V3 next to a shared one.
#include "attend/base/error.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

constexpr int kLagunaFull = 0, kLagunaSliding = 1;  // indices into spec.ropes

void read_laguna_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  if (const auto types = json.find("layer_types"))
    read_windows(json, read_layer_types(*types, spec.num_layers()), spec, 512);
  // Without rope_parameters, full attention layers rotate half of each head.
  const double share = json.has("rope_parameters") ? 1.0 : 0.5;
  const LayerRopes ropes =
      read_layer_ropes(json, {.full = head_dim, .sliding = head_dim}, spec.max_position_embeddings,
                       {.theta = 500000.0, .partial_rotary_factor = share}, {.theta = 10000.0});
  spec.ropes = {ropes.full, ropes.sliding};
}

OutputGate read_gate(const JsonNode& json) {
  const auto gating = json.find("gating");
  if (!gating || (gating->value().is_boolean() && gating->boolean())) return OutputGate::kPerHead;
  if (is_string(gating->value(), "per-head")) return OutputGate::kPerHead;
  if (!is_string(gating->value(), "per-element")) gating->reject("true, \"per-head\" or \"per-element\"");
  return OutputGate::kPerElement;
}

void read_laguna_config(const JsonNode& json, ModelSpec& spec) {
  reject_flag(json, "attention_bias", "biases of attention with gates that have none");
  const OutputGate gate = read_gate(json);
  const auto heads = json.find("num_attention_heads_per_layer");
  if (heads && heads->array_size() != spec.layers.size())
    heads->reject("an array with a number of heads for each of the layers");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    if (heads) attention.num_q_heads = heads->at(i).integer(1, 1 << 16);
    if (attention.num_q_heads % attention.num_kv_heads != 0)
      heads->at(i).reject("a multiple of num_key_value_heads " + std::to_string(attention.num_kv_heads));
    attention.qk_norm = QkNormSpan::kHead;
    attention.output_gate = gate;
    attention.gate_function = kernels::GateFunction::kSoftplus;
    attention.rope_set = attention.window_left >= 0 ? kLagunaSliding : kLagunaFull;
  }
  reject_flag(json, "moe_apply_router_weight_on_input", "router weights of inputs in Laguna");
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 256, .top_k = 8, .intermediate_size = 512});
  experts.rule.scores = kernels::RouterScores::kSigmoid;
  experts.rule.scale = static_cast<float>(json.find_positive("moe_routed_scaling_factor").value_or(1.0));
  // 0 turns it off.
  const auto cap = json.find("moe_router_logit_softcapping");
  if (cap && cap->value() != 0) experts.rule.logit_cap = static_cast<float>(cap->positive());
  experts.correction = true;
  experts.shared_intermediate_size =
      json.find_integer("shared_expert_intermediate_size", 1, 1 << 24).value_or(512);
  set_sparse_mlps(read_dense_mlps(json, spec.layers.size(), 1), experts, spec);
}

}  // namespace

constinit const ModelArchitecture kLaguna{
    .name = "LagunaForCausalLM",
    .models = "Laguna XS",
    .read_layers = read_laguna_layers,
    .read_config = read_laguna_config,
    .defaults = {.intermediate_size = 8192, .num_kv_heads = 8, .head_dim = 128},
    .names = {.output_gate_proj = "self_attn.g_proj",
              .router_correction = "mlp.experts.e_score_correction_bias",
              .shared_gate_proj = "mlp.shared_expert.gate_proj",
              .shared_up_proj = "mlp.shared_expert.up_proj",
              .shared_down_proj = "mlp.shared_expert.down_proj"}};

}  // namespace attend
