// MuseGlimmerForConditionalGeneration: gates of the output of attention, norms of q and k heads without
// weights, norms around each sublayer as in Gemma, a norm of embeddings, and a window in most layers. Layers
// without a base of their own are not rotated.
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

// By default every fourth layer, counted from the last one, has full attention and no RoPE.
bool is_full_by_default(size_t layer, size_t num_layers) { return (num_layers - 1 - layer) % 4 == 0; }

std::vector<bool> read_sliding(const JsonNode& json, const ModelSpec& spec) {
  if (const auto types = json.find("layer_types")) return read_layer_types(*types, spec.num_layers());
  std::vector<bool> slides;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    slides.push_back(!is_full_by_default(i, spec.layers.size()));
  return slides;
}

// layer_rope_theta is 0 for layers without RoPE. transformers ignores other values.
std::vector<bool> read_rotated(const JsonNode& json, const ModelSpec& spec) {
  const auto thetas = json.find("layer_rope_theta");
  if (thetas && thetas->array_size() != spec.layers.size())
    thetas->reject("an array with a number for each of the layers");
  std::vector<bool> rotated;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    rotated.push_back(thetas ? thetas->value()[i] != 0 : !is_full_by_default(i, spec.layers.size()));
    if (thetas && rotated.back() && thetas->at(i).positive() != spec.ropes.front().theta)
      thetas->at(i).unsupported(": attend supports 0 and rope_theta ", spec.ropes.front().theta);
  }
  return rotated;
}

void read_muse_glimmer_config(const JsonNode& json, ModelSpec& spec) {
  read_windows(json, read_sliding(json, spec), spec, 2048);
  const std::vector<bool> rotated = read_rotated(json, spec);
  const auto scale = static_cast<float>(json.find_positive("qk_scale_factor").value_or(3.87));
  reject_flag(json, "attention_bias", "biases of attention with gates that have none");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].norms = {.before = true, .after = true};
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    attention.scale *= scale;
    // RoPE does not change the norm of a head, so these norms may follow it.
    attention.qk_norm = QkNormSpan::kHeadAfterRope;
    attention.output_gate = OutputGate::kPerElement;
    if (!rotated[i]) attention.rope_set = -1;
  }
  spec.zero_centered_norms = spec.plain_final_norm = spec.embedding_norm = true;
  spec.post_norm_eps = static_cast<float>(json.find_positive("post_norm_eps").value_or(1e-8));
  spec.final_logit_scale =
      static_cast<float>(json.find_positive("output_multiplier").value_or(0.19611613513818404));
  spec.final_logit_cap = static_cast<float>(json.find_positive("final_logit_softcapping").value_or(20.0));
}

constexpr WeightPrefix kMuseSaved[] = {{"model.", "model.language_model."}};
constexpr WeightPrefixes kMusePrefixes[] = {kMuseSaved};

}  // namespace

constinit const ModelArchitecture kMuseGlimmer{
    .name = "MuseGlimmerForConditionalGeneration",
    .models = "Muse-Glimmer-30B (text)",
    .read_config = read_muse_glimmer_config,
    .defaults = {.vocab_size = 202048,
                 .hidden_size = 6656,
                 .intermediate_size = 19968,
                 .num_layers = 52,
                 .num_q_heads = 32,
                 .num_kv_heads = 2,
                 .head_dim = 128,
                 .max_position_embeddings = 131072,
                 .norm_eps = 1e-5,
                 .image_token_id = 200092,
                 .keys = {.activation = "hidden_activation"}},
    .text_config = TextConfig::kNested,
    .names = {.output_gate_proj = "self_attn.gate_proj", .mlp_norm = "pre_feedforward_layernorm"},
    .prefixes = kMusePrefixes};

}  // namespace attend
