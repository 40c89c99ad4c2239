// Architectures of the Mistral models.
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {

// MistralForCausalLM and MinistralForCausalLM: Llama without biases. The sliding layers of layer_types have a
// window or, if it is absent, all layers. With sliding_window null, no layer has one; its default is 4096.
namespace {

void read_mistral_config(const JsonNode& json, ModelSpec& spec) {
  const bool turned_off = json.mentions("sliding_window") && !json.has("sliding_window");
  std::vector<bool> slides(spec.layers.size(), !turned_off);
  // transformers reads this field only for MinistralForCausalLM. It also applies to MistralForCausalLM here.
  if (const auto types = json.find("layer_types")) slides = read_layer_types(*types, spec.num_layers());
  read_windows(json, slides, spec);
}

}  // namespace

constinit const ModelArchitecture kMinistral{.name = "MinistralForCausalLM",
                                             .models = "Ministral 8B",
                                             .read_config = read_mistral_config,
                                             .defaults = {.num_kv_heads = 8}};

constinit const ModelArchitecture kMistral{.name = "MistralForCausalLM",
                                           .models = "Mistral 7B, Nemo, Small",
                                           .read_config = read_mistral_config,
                                           .defaults = {.num_kv_heads = 8}};

// Ministral3ForCausalLM: Mistral without windows, with a query temperature. The text model of
// Mistral3ForConditionalGeneration is either this one, Mistral (Mistral Small 3.1) or Mistral 4.
namespace {

// Default if rope_parameters has no rope_theta.
constexpr double kMinistral3Theta = 1e6;

void read_mistral3_windows(const JsonNode& json, ModelSpec& spec) {
  const auto window = json.find_integer("sliding_window", 1, 1 << 30);
  if (window) set_windows(spec, std::vector<bool>(spec.layers.size(), true), *window);
}

void read_ministral3_config(const JsonNode& json, ModelSpec& spec) {
  read_mistral3_windows(json, spec);
  // The field is required, as in transformers.
  const JsonNode rope = json.at("rope_parameters");
  const auto slope = rope.find_positive("llama_4_scaling_beta");
  if (!slope) return;
  const kernels::QueryTemperature temperature{
      .slope = static_cast<float>(*slope),
      .floor_scale = static_cast<float>(rope.integer("original_max_position_embeddings", 1, 1 << 30)),
      .first = 0};
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.temperature = temperature; });
}

std::string text_model_type(const JsonNode& json) {
  return json.find_string("model_type").value_or("mistral");
}

void read_mistral3_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  const auto read = text_model_type(json) == "mistral4" ? read_mistral4_layers : read_dense_layers;
  read(json, defaults, spec);
}

void read_mistral3_config(const JsonNode& json, ModelSpec& spec) {
  const std::string type = text_model_type(json);
  if (type == "mistral4") return;
  if (type == "ministral3") return read_ministral3_config(json, spec);
  if (type != "mistral")
    json.at("model_type")
        .unsupported("\"", type, "\": attend supports the text models mistral, ministral3, mistral4");
  read_mistral3_windows(json, spec);
}

// Names in Mistral's checkpoints, and as transformers 5 saves them.
constexpr WeightPrefix kMistral3Published[] = {{"", "language_model."}};
constexpr WeightPrefix kMistral3Saved[] = {{"model.", "model.language_model."}};
constexpr WeightPrefixes kMistral3Prefixes[] = {kMistral3Published, kMistral3Saved};

}  // namespace

constinit const ModelArchitecture kMinistral3{
    .name = "Ministral3ForCausalLM",
    .models = "Ministral 3",
    .read_config = read_ministral3_config,
    .defaults = {.num_kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5, .rope = {.theta = kMinistral3Theta}}};

constinit const ModelArchitecture kMistral3{.name = "Mistral3ForConditionalGeneration",
                                            .models = "Mistral Small 3.1, 3.2, 4; Ministral 3",
                                            .read_layers = read_mistral3_layers,
                                            .read_config = read_mistral3_config,
                                            .defaults = {.vocab_size = 131072,
                                                         .hidden_size = 5120,
                                                         .intermediate_size = 32768,
                                                         .num_layers = 40,
                                                         .num_q_heads = 32,
                                                         .num_kv_heads = 8,
                                                         .head_dim = 128,
                                                         .max_position_embeddings = 131072,
                                                         .norm_eps = 1e-5,
                                                         .rope = {.theta = 1e9},
                                                         .image_token_id = 10},
                                            .text_config = TextConfig::kNested,
                                            .prefixes = kMistral3Prefixes,
                                            .vision = &kMistral3Vision};

// MixtralForCausalLM: Mistral with experts in every layer. If sliding_window is set, all layers have a
// window. It is null or absent in published configs.
namespace {

void read_mixtral_config(const JsonNode& json, ModelSpec& spec) {
  const auto window = json.find_integer("sliding_window", 1, 1 << 30);
  if (window) set_windows(spec, std::vector<bool>(spec.layers.size(), true), *window);
  const MoeMlpSpec mlp = read_moe_mlp(
      json,
      {.num_experts = 8, .top_k = 2, .intermediate_key = "intermediate_size", .intermediate_size = 14336});
  for (LayerSpec& layer : spec.layers) layer.mlp = mlp;
}

}  // namespace

constinit const ModelArchitecture kMixtral{
    .name = "MixtralForCausalLM",
    .models = "Mixtral 8x7B, 8x22B",
    .read_config = read_mixtral_config,
    .defaults = {.intermediate_size = 14336, .num_kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 1e6}},
    .names = {.router = "block_sparse_moe.gate",
              .experts = "block_sparse_moe.experts",
              .expert_gate_proj = "w1",
              .expert_up_proj = "w3",
              .expert_down_proj = "w2"}};

}  // namespace attend
