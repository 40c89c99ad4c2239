// GraniteForCausalLM: Llama with multipliers for embeddings, sublayers, scores and logits.
// GraniteMoeForCausalLM and GraniteMoeSharedForCausalLM have experts, the latter with a shared one.
// GraniteMoeHybridForCausalLM (Granite 4) has Mamba-2 in most layers, and experts next to a dense MLP.
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/architectures/hybrid/mamba2.h"

namespace attend {
namespace {

void read_multipliers(const JsonNode& json, ModelSpec& spec) {
  const auto scale = static_cast<float>(read_activation_factor(json, "attention_multiplier"));
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.scale = scale; });
  set_residual_scale(read_activation_factor(json, "residual_multiplier"),
                     read_activation_factor(json, "embedding_multiplier"), spec);
  spec.final_logit_scale = static_cast<float>(1.0 / read_activation_factor(json, "logits_scaling"));
}

void read_granite_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
  read_multipliers(json, spec);
}

MoeMlpSpec read_granite_experts(const JsonNode& json) {
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 8,
                                           .top_k = 2,
                                           .num_experts_key = "num_local_experts",
                                           .intermediate_key = "intermediate_size",
                                           .intermediate_size = 11008});
  experts.fused_experts = experts.fused_expert_rows = true;
  return experts;
}

void read_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_granite_config(json, spec);
  const MoeMlpSpec experts = read_granite_experts(json);
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

void read_shared_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_moe_config(json, spec);
  const int shared = json.find_integer("shared_intermediate_size", 0, 1 << 24).value_or(0);
  for (LayerSpec& layer : spec.layers) std::get<MoeMlpSpec>(layer.mlp).shared_intermediate_size = shared;
}

// Returns for each layer whether it is recurrent. transformers accepts both names of the field and of each
// type. Without the field, all layers are.
std::vector<bool> read_recurrent_layers(const JsonNode& json, size_t num_layers) {
  std::vector<bool> recurrent(num_layers, true);
  const auto types = json.find(json.has("layer_types") ? "layer_types" : "layers_block_type");
  if (!types) return recurrent;
  const std::string expected =
      "an array of " + std::to_string(num_layers) + " times \"mamba\" or \"attention\"";
  if (!types->value().is_array() || types->value().size() != num_layers) types->reject(expected);
  for (size_t i = 0; i < num_layers; ++i) {
    const Json& type = types->value()[i];
    recurrent[i] = is_string(type, "mamba") || is_string(type, "linear_attention");
    if (!recurrent[i] && !is_string(type, "attention") && !is_string(type, "full_attention"))
      types->reject(expected);
  }
  return recurrent;
}

MlpSpec read_hybrid_mlp(const JsonNode& json) {
  const int shared = json.find_integer("shared_intermediate_size", 1, 1 << 24).value_or(1024);
  if (json.find_integer("num_local_experts", 0, 1 << 16).value_or(8) == 0)
    return GatedMlpSpec{.intermediate_size = shared, .fused_gate_up = true};
  MoeMlpSpec experts = read_granite_experts(json);
  experts.shared_intermediate_size = shared;
  return experts;
}

void read_hybrid_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  // Any other value turns rotation off in transformers; published models have "nope".
  const bool rotates = json.find_string("position_embedding_type").value_or("nope") == "rope";
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    if (!rotates) attention.rope_set = -1;
  });
  if (!rotates) spec.ropes.clear();
  const Mamba2Spec mamba = read_mamba2(json, spec);
  const std::vector<bool> recurrent = read_recurrent_layers(json, spec.layers.size());
  const MlpSpec mlp = read_hybrid_mlp(json);
  for (size_t i = 0; i < recurrent.size(); ++i) {
    if (recurrent[i]) spec.layers[i].mixer = mamba;
    spec.layers[i].mlp = mlp;
  }
  read_multipliers(json, spec);
}

constexpr ConfigDefaults moe_defaults() {
  return {.vocab_size = 32000,
          .hidden_size = 4096,
          .intermediate_size = 11008,
          .num_layers = 32,
          .num_q_heads = 32,
          .max_position_embeddings = 2048};
}

constexpr DecoderNames kGraniteNames{.gate_up_proj = "shared_mlp.input_linear",
                                     .down_proj = "shared_mlp.output_linear",
                                     .router = "block_sparse_moe.router.layer",
                                     .experts = "block_sparse_moe",
                                     .fused_gate_up_proj = "input_linear.weight",
                                     .fused_down_proj = "output_linear.weight",
                                     .shared_gate_proj = "shared_mlp.input_linear",
                                     .shared_up_proj = "shared_mlp.input_linear",
                                     .shared_down_proj = "shared_mlp.output_linear",
                                     .in_proj = "mamba.in_proj",
                                     .conv = "mamba.conv1d",
                                     .a_log = "mamba.A_log",
                                     .dt_bias = "mamba.dt_bias",
                                     .state_d = "mamba.D",
                                     .gated_norm = "mamba.norm",
                                     .out_proj = "mamba.out_proj"};

}  // namespace

constinit const ModelArchitecture kGranite{
    .name = "GraniteForCausalLM", .models = "Granite 3.x", .read_config = read_granite_config};

constinit const ModelArchitecture kGraniteMoe{.name = "GraniteMoeForCausalLM",
                                              .models = "Granite 3.x 1B-A400M, 3B-A800M, PowerMoE",
                                              .read_config = read_moe_config,
                                              .defaults = moe_defaults(),
                                              .names = kGraniteNames};

constinit const ModelArchitecture kGraniteMoeShared{.name = "GraniteMoeSharedForCausalLM",
                                                    .models = "Granite with a shared expert",
                                                    .read_config = read_shared_moe_config,
                                                    .defaults = moe_defaults(),
                                                    .names = kGraniteNames};

constinit const ModelArchitecture kGraniteMoeHybrid{.name = "GraniteMoeHybridForCausalLM",
                                                    .models = "Granite 4.0 H-Small, H-Tiny, H-Micro, Micro",
                                                    .read_config = read_hybrid_config,
                                                    .defaults = moe_defaults(),
                                                    .names = kGraniteNames};

}  // namespace attend
