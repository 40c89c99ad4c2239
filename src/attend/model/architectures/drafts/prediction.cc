#include "attend/model/architectures/drafts/prediction.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {
namespace {

// Returns whether tokens attend to all earlier ones.
bool attends_to_all(const LayerSpec& layer) {
  const auto* const attention = std::get_if<AttentionSpec>(&layer.mixer);
  return std::holds_alternative<MlaSpec>(layer.mixer) ||
         (attention != nullptr && attention->window_left < 0 && attention->chunk == 0);
}

void clear_first_embedding(ModelSpec& spec) { spec.draft->clears_first_embedding = true; }

}  // namespace

void read_prediction(const JsonNode& json, ModelSpec& spec) {
  constexpr const char* kCount = "num_nextn_predict_layers";
  if (json.has(kCount) && json.integer(kCount, 0, 1 << 16) == 0)
    fail(ErrorCode::kUnsupported, json.where(kCount), " 0: expected at least 1, a layer for drafts");
  const auto found = std::ranges::find_if(spec.layers.rbegin(), spec.layers.rend(), attends_to_all);
  if (found == spec.layers.rend())
    fail(ErrorCode::kUnsupported, json.where("layer_types"), ": expected a layer with full attention");
  LayerSpec layer = *found;
  layer.mlp = spec.layers.back().mlp;
  spec.layers = {layer};
  spec.draft = {.target_hidden_size = spec.hidden_size, .returns_normed = true, .shares_vocab = true};
}

// MiMoMTP: hidden state first, no embedding at position 0.
namespace {

void read_mimo(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", true);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.qkv_bias = bias; });
}

void read_mimo_draft(const JsonNode& json, ModelSpec& spec) {
  read_prediction(json, spec);
  clear_first_embedding(spec);
  spec.draft->hidden_first = true;
}

}  // namespace

constinit const ModelArchitecture kMiMoPrediction{.name = "MiMoMTP",
                                                  .read_config = read_mimo,
                                                  .defaults = {.num_kv_heads = 32},
                                                  .read_draft = read_mimo_draft,
                                                  .names = {.layers = "model.mtp_layers",
                                                            .final_norm = ".final_layernorm",
                                                            .draft_projection = ".input_proj",
                                                            .draft_embedding_norm = ".token_layernorm",
                                                            .draft_hidden_norm = ".hidden_layernorm"}};

constinit const ModelArchitecture kMiMo{.name = "MiMoForCausalLM",
                                        .models = "MiMo-7B",
                                        .read_config = read_mimo,
                                        .defaults = {.num_kv_heads = 32},
                                        .prediction = &kMiMoPrediction};

// Ernie4_5ForCausalLMMTP: biases by use_bias, no embedding at position 0, no norm of the output.
namespace {

void read_ernie_draft(const JsonNode& json, ModelSpec& spec) {
  read_prediction(json, spec);
  clear_first_embedding(spec);
  spec.draft->bias = json.boolean_or("use_bias", false);
  spec.final_norm = false;
}

constexpr WeightPrefix kErnieBare[] = {{"model.mtp_", "mtp_"}};
constexpr WeightPrefixes kErniePrefixes[] = {kErnieBare};

}  // namespace

constinit const ModelArchitecture kErnie45Prediction{.name = "Ernie4_5ForCausalLMMTP",
                                                     .read_draft = read_ernie_draft,
                                                     .names = {.layers = "model.mtp_block",
                                                               .draft_projection = "model.mtp_linear_proj.0",
                                                               .draft_embedding_norm = "model.mtp_emb_norm.0",
                                                               .draft_hidden_norm = "model.mtp_hidden_norm.0",
                                                               .scheme = "model.mtp_emb_norm.0"},
                                                     .prefixes = kErniePrefixes};

// DeepSeek-V3 and GLM: the layer after the last one. Its copies of table and head are not loaded.
namespace {

constexpr DecoderNames next_layer_names() {
  return {.final_norm = ".shared_head.norm",
          .draft_projection = ".eh_proj",
          .draft_embedding_norm = ".enorm",
          .draft_hidden_norm = ".hnorm"};
}

}  // namespace

constinit const ModelArchitecture kDeepseekV3Prediction{
    .name = "DeepseekV3ForCausalLMNextN", .read_draft = read_prediction, .names = next_layer_names()};

constinit const ModelArchitecture kGlm4MoePrediction{
    .name = "Glm4MoeForCausalLMNextN", .read_draft = read_prediction, .names = next_layer_names()};

constinit const ModelArchitecture kGlm4MoeLitePrediction{
    .name = "Glm4MoeLiteForCausalLMNextN", .read_draft = read_prediction, .names = next_layer_names()};

// Qwen3-Next and Qwen 3.5.
constinit const ModelArchitecture kQwen3NextPrediction{
    .name = "Qwen3NextForCausalLMMTP",
    .read_draft = read_prediction,
    .names = {.layers = "mtp.layers",
              .final_norm = "mtp.norm",
              .shared_gate_proj = "mlp.shared_expert.gate_proj",
              .shared_up_proj = "mlp.shared_expert.up_proj",
              .shared_down_proj = "mlp.shared_expert.down_proj",
              .draft_projection = "mtp.fc",
              .draft_embedding_norm = "mtp.pre_fc_norm_embedding",
              .draft_hidden_norm = "mtp.pre_fc_norm_hidden"}};

}  // namespace attend
