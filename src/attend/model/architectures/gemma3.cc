// Gemma3ForCausalLM, and the text of Gemma3ForConditionalGeneration: Gemma 2 with norms of the heads of q and
// k in place of the cap of scores, and other rotary embeddings for the layers with a window.
#include "attend/model/architectures/gemma.h"

namespace attend {
namespace {

// Of spec.ropes.
constexpr int kFull = 0, kSliding = 1;

void read_gemma3_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const int pattern = json.find_integer("sliding_window_pattern", 1, 1 << 16).value_or(6);
  read_alternating_windows(json, pattern, kGemmaWindow, spec);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  const LayerRopes ropes =
      read_layer_ropes(json, head_dim, spec.max_position_embeddings, {.theta = 1e6}, {.theta = 1e4});
  spec.ropes = {ropes.full, ropes.sliding};
  for_each_attention(spec, [](AttentionSpec& attention) {
    attention.rope_set = attention.window_left >= 0 ? kSliding : kFull;
  });
}

void read_gemma3_config(const JsonNode& json, ModelSpec& spec) {
  read_gemma_config(json, spec);
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qk_norm = QkNormSpan::kHead; });
  // transformers reads attn_logit_softcapping and applies none.
  spec.final_logit_cap = read_logit_cap(json, "final_logit_softcapping", 0.0f);
}

// The decoder without its head (EmbeddingGemma). A window counts the tokens of both sides.
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

// As Gemma was published, and as transformers 5 saves it.
constexpr WeightPrefix kPrefixes[] = {{"model.", "language_model.model."},
                                      {"model.", "model.language_model."}};
constexpr WeightPrefix kBareNames[] = {{"model.", ""}};

}  // namespace

constinit const ModelArchitecture kGemma3{.name = "Gemma3ForCausalLM",
                                          .read_layers = read_gemma3_layers,
                                          .read_config = read_gemma3_config,
                                          .defaults = gemma3_defaults(262208, -1),
                                          .names = kGemmaNames};

constinit const ModelArchitecture kGemma3Embedding{.name = "Gemma3TextModel",
                                                   .read_layers = read_gemma3_layers,
                                                   .read_config = read_gemma3_embedding_config,
                                                   .defaults = gemma3_defaults(262208, -1),
                                                   .names = kGemmaNames,
                                                   .prefixes = kBareNames};

constinit const ModelArchitecture kGemma3Multimodal{.name = "Gemma3ForConditionalGeneration",
                                                    .read_layers = read_gemma3_layers,
                                                    .read_config = read_gemma3_config,
                                                    .defaults = gemma3_defaults(262208, 262144),
                                                    .text_config = TextConfig::kNested,
                                                    .names = kGemmaNames,
                                                    .prefixes = kPrefixes};

}  // namespace attend
