// NemotronHForCausalLM: each layer has one sublayer: Mamba-2, attention without rotation, an MLP, or experts.
// MLPs and experts have relu(x)^2 and no gate.
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/architectures/hybrid/mamba2.h"
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

struct LayerKind {
  char letter;
  std::string_view name, new_name;  // in files, and in those of newer versions of transformers
};
constexpr LayerKind kMambaLayer{'M', "mamba", "linear_attention"},
    kAttentionLayer{'*', "attention", "full_attention"}, kMlpLayer{'-', "mlp", "mlp"},
    kExpertLayer{'E', "moe", "moe"};
constexpr LayerKind kLayerKinds[] = {kMambaLayer, kAttentionLayer, kMlpLayer, kExpertLayer};

// Returns the letter of each layer from layers_block_type, layer_types or hybrid_override_pattern.
std::string read_pattern(const JsonNode& json) {
  const auto types = json.find(json.has("layers_block_type") ? "layers_block_type" : "layer_types");
  if (!types) {
    const std::string pattern = json.find_string("hybrid_override_pattern").value_or("ME*-");
    if (pattern.empty() || pattern.find_first_not_of("M*-E") != pattern.npos)
      json.reject("hybrid_override_pattern", "a letter per layer: M, *, - or E");
    return pattern;
  }
  const std::string expected = "an array of \"mamba\", \"attention\", \"mlp\" or \"moe\", one per layer";
  if (!types->value().is_array() || types->value().empty()) types->reject(expected);
  std::string pattern;
  for (const Json& type : types->value()) {
    const size_t length = pattern.size();
    for (const LayerKind& kind : kLayerKinds)
      if (pattern.size() == length && (is_string(type, kind.name) || is_string(type, kind.new_name)))
        pattern += kind.letter;
    if (pattern.size() == length) types->reject(expected);
  }
  return pattern;
}

Mamba2Spec read_nemotron_mamba(const JsonNode& json, float norm_eps) {
  const auto either = [&](const char* alias, const char* key) { return json.has(alias) ? alias : key; };
  Mamba2Spec mamba = read_mamba2(json,
                                 {.num_heads = "mamba_num_heads",
                                  .head_dim = "mamba_head_dim",
                                  .num_groups = either("mamba_n_groups", "n_groups"),
                                  .state_dim = "ssm_state_size",
                                  .conv_kernel = either("mamba_d_conv", "conv_kernel"),
                                  .conv_bias = either("mamba_conv_bias", "use_conv_bias"),
                                  .missing_head_dim = 64,
                                  .missing_groups = 8,
                                  .missing_state_dim = 128},
                                 norm_eps, /*features=*/0);
  mamba.in_bias = mamba.out_bias = json.boolean_or("use_bias", false);
  return mamba;
}

MoeMlpSpec read_nemotron_experts(const JsonNode& json, bool mlp_bias) {
  if (mlp_bias)
    fail(ErrorCode::kUnsupported, json.where("mlp_bias"), " true: attend does not support biases of experts");
  MoeMlpSpec experts = read_deepseek_experts(
      json, {.moe_intermediate_size = 7688, .num_experts = 8, .top_k = 2, .num_shared_experts = 1},
      read_corrected_rule(json, /*normalized=*/true));
  experts.correction = true;
  experts.gate.activation = kernels::ExpertActivation::kRelu2;
  experts.shared_intermediate_size =
      json.find_integer("moe_shared_expert_intermediate_size", 1, 1 << 24).value_or(7688);
  experts.latent_size = json.find_integer("moe_latent_size", 1, 1 << 16).value_or(0);
  return experts;
}

void read_nemotron_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  expect_string(json, "mlp_hidden_act", "relu2");
  expect_string(json, "mamba_hidden_act", "silu");
  spec.norm_eps = static_cast<float>(json.find_positive("layer_norm_epsilon").value_or(defaults.norm_eps));
  const bool mlp_bias = json.boolean_or("mlp_bias", false);
  AttentionSpec attention = read_attention(json, defaults, spec.hidden_size);
  attention.rope_set = -1;
  const std::string pattern = read_pattern(json);
  for (const char letter : pattern) {
    LayerSpec layer{.mixer = std::monostate(), .mlp = std::monostate()};
    if (letter == kMambaLayer.letter)
      layer.mixer = read_nemotron_mamba(json, spec.norm_eps);
    else if (letter == kAttentionLayer.letter)
      layer.mixer = attention;
    else if (letter == kExpertLayer.letter)
      layer.mlp = read_nemotron_experts(json, mlp_bias);
    else
      layer.mlp = PlainMlpSpec{
          .intermediate_size = json.find_integer("intermediate_size", 1, 1 << 24).value_or(21504),
          .activation = kernels::PlainActivation::kRelu2,
          .bias = mlp_bias};
    spec.layers.push_back(layer);
  }
}

}  // namespace

constinit const ModelArchitecture kNemotronH{
    .name = "NemotronHForCausalLM",
    .models = "Nemotron-H, Nemotron Nano 2, Nemotron 3",
    .read_layers = read_nemotron_layers,
    .defaults = {.vocab_size = 131072,
                 .hidden_size = 4096,
                 .num_q_heads = 32,
                 .num_kv_heads = 8,
                 .head_dim = 128,
                 .max_position_embeddings = 4096,
                 .norm_eps = 1e-5},
    .names = {.embedding = "backbone.embeddings",
              .layers = "backbone.layers",
              .final_norm = "backbone.norm_f",
              .attention_norm = "norm",
              .q_proj = "mixer.q_proj",
              .k_proj = "mixer.k_proj",
              .v_proj = "mixer.v_proj",
              .o_proj = "mixer.o_proj",
              .mlp_norm = "norm",
              .up_proj = "mixer.up_proj",
              .down_proj = "mixer.down_proj",
              .router = "mixer.gate",
              .experts = "mixer.experts",
              .router_correction = "mixer.gate.e_score_correction_bias",
              .shared_up_proj = "mixer.shared_experts.up_proj",
              .shared_down_proj = "mixer.shared_experts.down_proj",
              .latent_in_proj = "mixer.fc1_latent_proj",
              .latent_out_proj = "mixer.fc2_latent_proj",
              .in_proj = "mixer.in_proj",
              .conv = "mixer.conv1d",
              .a_log = "mixer.A_log",
              .dt_bias = "mixer.dt_bias",
              .state_d = "mixer.D",
              .gated_norm = "mixer.norm",
              .out_proj = "mixer.out_proj"}};

}  // namespace attend
