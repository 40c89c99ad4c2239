// Architectures of the Gemma models.
#include "attend/model/architectures/gemma.h"

#include <cmath>

namespace attend {

float gemma_embedding_scale(int hidden_size, DType dtype) {
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(hidden_size)));
  float scale = root;
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) { scale = static_cast<float>(T(root)); });
  return scale;
}

float read_logit_cap(const JsonNode& json, const char* key, float missing) {
  if (!json.mentions(key)) return missing;
  return static_cast<float>(json.find_positive(key).value_or(0.0));
}

namespace {

constexpr ConfigDefaults kGemmaDefaults{.vocab_size = 256000,
                                        .hidden_size = 2304,
                                        .intermediate_size = 9216,
                                        .num_layers = 26,
                                        .num_q_heads = 8,
                                        .num_kv_heads = 4,
                                        .head_dim = 256,
                                        .max_position_embeddings = 8192,
                                        .norm_eps = 1e-6,
                                        .tie_word_embeddings = true,
                                        .activation = "gelu_pytorch_tanh",
                                        .keys = {.activation = "hidden_activation"}};

constexpr DecoderNames kGemmaNames{.mlp_norm = "pre_feedforward_layernorm"};

constexpr int kGemmaWindow = 4096;

// Reads norms, biases and scales: everything except caps, windows and rotary embeddings. Accepts models with
// bidirectional attention.
void read_gemma_scales(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  const auto scale = 1.0 / std::sqrt(json.find_positive("query_pre_attn_scalar").value_or(256.0));
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = attention.output_bias = bias;
    attention.scale = static_cast<float>(scale);
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = true, .after = true};
  spec.zero_centered_norms = true;
  spec.embedding_scale = gemma_embedding_scale(spec.hidden_size, spec.dtype);
}

// Same for a model with causal attention.
void read_gemma_config(const JsonNode& json, ModelSpec& spec) {
  if (json.boolean_or("use_bidirectional_attention", false))
    json.at("use_bidirectional_attention").unsupported("true: attend generates with causal attention only");
  read_gemma_scales(json, spec);
}

}  // namespace

// GemmaForCausalLM: the first Gemma. Llama with zero-centered norms, scaled embeddings and GELU.
namespace {

void read_gemma1_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_config(json, spec);
  // The first Gemma has no query_pre_attn_scalar, and norms only before sublayers.
  for_each_attention(spec, [](AttentionSpec& attention) {
    attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {};
}

constexpr ConfigDefaults gemma1_defaults() {
  ConfigDefaults defaults = kGemmaDefaults;
  defaults.hidden_size = 3072;
  defaults.intermediate_size = 24576;
  defaults.num_layers = 28;
  defaults.num_q_heads = 16;
  defaults.num_kv_heads = 16;
  return defaults;
}

}  // namespace

constinit const ModelArchitecture kGemma{.name = "GemmaForCausalLM",
                                         .models = "Gemma 1",
                                         .read_config = read_gemma1_config,
                                         .defaults = gemma1_defaults()};

// Gemma2ForCausalLM: norms before and after each sublayer, scaled embeddings, caps for scores and logits, and
// a window in every other layer.
namespace {

void read_gemma2_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_config(json, spec);
  const float cap = read_logit_cap(json, "attn_logit_softcapping", 50.0f);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.logit_cap = cap; });
  spec.final_logit_cap = read_logit_cap(json, "final_logit_softcapping", 30.0f);
  read_alternating_windows(json, /*full_every=*/2, kGemmaWindow, spec);
}

}  // namespace

constinit const ModelArchitecture kGemma2{.name = "Gemma2ForCausalLM",
                                          .models = "Gemma 2",
                                          .read_config = read_gemma2_config,
                                          .defaults = kGemmaDefaults,
                                          .names = kGemmaNames};

// Gemma3ForCausalLM, and the text model of Gemma3ForConditionalGeneration: Gemma 2 with norms of q and k
// heads instead of the cap for scores, and different rotary embeddings in sliding layers.
namespace {

// Indices into spec.ropes.
constexpr int kFull = 0, kSliding = 1;

void read_gemma3_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const int pattern = json.find_integer("sliding_window_pattern", 1, 1 << 16).value_or(6);
  read_alternating_windows(json, pattern, kGemmaWindow, spec);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  const LayerRopes ropes = read_layer_ropes(json, {.full = head_dim, .sliding = head_dim},
                                            spec.max_position_embeddings, {.theta = 1e6}, {.theta = 1e4});
  spec.ropes = {ropes.full, ropes.sliding};
  for_each_attention(spec, [](AttentionSpec& attention) {
    attention.rope_set = attention.window_left >= 0 ? kSliding : kFull;
  });
}

void read_gemma3_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_config(json, spec);
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kHead; });
  // transformers reads attn_logit_softcapping but does not apply it.
  spec.final_logit_cap = read_logit_cap(json, "final_logit_softcapping", 0.0f);
}

// Reads the decoder without a head (EmbeddingGemma). The window includes the tokens on both sides.
void read_gemma3_embedding_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_scales(json, spec);
  const bool bidirectional = json.boolean_or("use_bidirectional_attention", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qk_norm = QkNormSpan::kHead;
    if (!bidirectional) return;
    if (attention.window_left >= 0) attention.window_left = (attention.window_left + 1) / 2;
    attention.window_right = attention.window_left;
  });
}

constexpr ConfigDefaults gemma3_defaults(int vocab_size, int image_token_id) {
  ConfigDefaults defaults = kGemmaDefaults;
  defaults.vocab_size = vocab_size;
  defaults.max_position_embeddings = 131072;
  defaults.image_token_id = image_token_id;
  return defaults;
}

// Names in Google's checkpoints, and as transformers 5 saves them.
constexpr WeightPrefix kPublished[] = {{"model.", "language_model.model."},
                                       {"lm_head.", "language_model.lm_head."}};
constexpr WeightPrefix kSaved[] = {{"model.", "model.language_model."}};
constexpr WeightPrefixes kPrefixes[] = {kPublished, kSaved};
constexpr WeightPrefix kBareNames[] = {{"model.", ""}};
constexpr WeightPrefixes kBarePrefixes[] = {kBareNames};

}  // namespace

constinit const ModelArchitecture kGemma3{.name = "Gemma3ForCausalLM",
                                          .models = "Gemma 3 270M, 1B",
                                          .read_layers = read_gemma3_layers,
                                          .read_config = read_gemma3_config,
                                          .defaults = gemma3_defaults(262208, -1),
                                          .names = kGemmaNames};

constinit const ModelArchitecture kGemma3Embedding{.name = "Gemma3TextModel",
                                                   .models = "EmbeddingGemma",
                                                   .read_layers = read_gemma3_layers,
                                                   .read_config = read_gemma3_embedding_config,
                                                   .defaults = gemma3_defaults(262208, -1),
                                                   .names = kGemmaNames,
                                                   .prefixes = kBarePrefixes};

constinit const ModelArchitecture kGemma3Multimodal{.name = "Gemma3ForConditionalGeneration",
                                                    .models = "Gemma 3 4B to 27B",
                                                    .read_layers = read_gemma3_layers,
                                                    .read_config = read_gemma3_config,
                                                    .defaults = gemma3_defaults(262208, 262144),
                                                    .text_config = TextConfig::kNested,
                                                    .names = kGemmaNames,
                                                    .prefixes = kPrefixes,
                                                    .vision = &kGemma3Vision};

}  // namespace attend
