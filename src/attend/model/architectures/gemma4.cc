// Gemma4ForCausalLM, and the text models of Gemma4ForConditionalGeneration and
// Gemma4UnifiedForConditionalGeneration (12B). Differences from Gemma 3:
//
// - Norms multiply by their weights, scores are not scaled, and heads of v are normalized without weights.
// - Layers with full attention have wider heads, and may use the product of Wk as v too (31B, 26B-A4B).
// - The last layers attend to the K and V of the last layer of their type before them (E2B, E4B).
// - Each layer adds an embedding of its own (E2B, E4B), and multiplies its output by a factor.
// - Experts run in parallel with the MLP (26B-A4B).
#include <charconv>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/architectures/gemma.h"

namespace attend {
namespace {

// Indices into spec.ropes.
constexpr int kGlobalRope = 0, kLocalRope = 1;

std::vector<bool> read_sliding_layers(const JsonNode& json, int num_layers) {
  constexpr int kFullEvery = 6;
  std::vector<bool> slides;
  if (const auto types = json.find("layer_types"))
    slides = read_layer_types(*types, num_layers);
  else
    for (int i = 0; i < num_layers; ++i) slides.push_back((i + 1) % kFullEvery != 0);
  // transformers changes the type of the last layer too.
  slides.back() = false;
  return slides;
}

// Sets head dims and numbers of KV heads of layers with full attention. Published files have two fields for
// all of them; transformers 5.24 writes per_layer_config instead, with an object per layer.
void read_head_shapes(const JsonNode& json, const std::vector<bool>& slides, ModelSpec& spec) {
  const auto layers = json.find("per_layer_config");
  const auto kv_heads = [](const JsonNode& holder, const char* key, const AttentionSpec& attention) {
    const int num_heads = holder.find_integer(key, 1, 1 << 16).value_or(attention.num_kv_heads);
    if (attention.num_q_heads % num_heads != 0)
      holder.reject(key, "a divisor of num_attention_heads " + std::to_string(attention.num_q_heads));
    return num_heads;
  };
  if (!layers) {
    const int head_dim = json.find_integer("global_head_dim", 1, 1 << 16).value_or(512);
    for (size_t i = 0; i < slides.size(); ++i) {
      if (slides[i]) continue;
      auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
      attention.head_dim = head_dim;
      if (json.boolean_or("attention_k_eq_v", false))
        attention.num_kv_heads = kv_heads(json, "num_global_key_value_heads", attention);
    }
    return;
  }
  for (const auto& [index, fields] : layers->value().items()) {
    const JsonNode layer = layers->at(index);
    for (const auto& [key, value] : fields.items())
      if (key != "head_dim" && key != "num_key_value_heads")
        fail(ErrorCode::kUnsupported, layer.where(key), ": attend supports head_dim and num_key_value_heads");
    size_t i = spec.layers.size();
    std::from_chars(index.data(), index.data() + index.size(), i);
    if (i >= spec.layers.size()) layers->reject("layers 0 to " + std::to_string(spec.layers.size() - 1));
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    attention.head_dim = layer.find_integer("head_dim", 1, 1 << 16).value_or(attention.head_dim);
    attention.num_kv_heads = kv_heads(layer, "num_key_value_heads", attention);
  }
}

// Returns the common head dim of the layers of one type, or that of the other type if there are none.
int find_head_dim(const ModelSpec& spec, const std::vector<bool>& slides, bool slide, const JsonNode& json) {
  int head_dim = 0;
  for (size_t i = 0; i < slides.size(); ++i) {
    const auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    if (slides[i] != slide) continue;
    if (head_dim != 0 && attention.head_dim != head_dim)
      fail(ErrorCode::kUnsupported, json.where("per_layer_config"), ": head_dim ", attention.head_dim,
           " of layer ", i, ": expected ", head_dim, ", as in the other layers of its type");
    head_dim = attention.head_dim;
  }
  return head_dim != 0 ? head_dim : std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
}

void share_kv(const JsonNode& json, const std::vector<bool>& slides, ModelSpec& spec) {
  constexpr const char* kKey = "num_kv_shared_layers";
  const auto num_layers = static_cast<int>(slides.size());
  const int num_own = num_layers - json.find_integer(kKey, 0, num_layers - 1).value_or(0);
  const bool wide = json.boolean_or("use_double_wide_mlp", false);
  for (int i = num_own; i < num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    int source = num_own - 1;
    while (source >= 0 && slides[static_cast<size_t>(source)] != slides[layer]) --source;
    if (source < 0)
      fail(ErrorCode::kCorruptFile, json.where(kKey), " ", num_layers - num_own, ": no layer before layer ",
           num_own, " has the layer type of layer ", i);
    auto& attention = std::get<AttentionSpec>(spec.layers[layer].mixer);
    const auto& from = std::get<AttentionSpec>(spec.layers[static_cast<size_t>(source)].mixer);
    if (attention.head_dim != from.head_dim || attention.num_kv_heads != from.num_kv_heads)
      fail(ErrorCode::kCorruptFile, json.where("per_layer_config"), ": layer ", i,
           " shares the K and V of layer ", source, ": expected the same head_dim and num_key_value_heads");
    attention.kv_layer = source;
    if (wide) std::get<GatedMlpSpec>(spec.layers[layer].mlp).intermediate_size *= 2;
  }
}

void add_experts(const JsonNode& json, ModelSpec& spec) {
  if (!json.boolean_or("enable_moe_block", false)) return;
  MoeMlpSpec moe = read_moe_mlp(json, {.top_k_alias = "top_k_experts", .num_experts_key = "num_experts"});
  moe.router_norm = true;
  moe.gate.activation = kernels::ExpertActivation::kGeluTanh;
  moe.fused_experts = moe.fused_expert_rows = true;
  for (LayerSpec& layer : spec.layers)
    layer.mlp = ParallelMoeSpec{.dense = std::get<GatedMlpSpec>(layer.mlp), .moe = moe};
}

void read_gemma4_attention(const JsonNode& json, const ConfigDefaults& defaults, int default_window,
                           ModelSpec& spec) {
  expect_string(json, "hidden_activation", "gelu_pytorch_tanh");
  make_dense_layers(json, defaults, spec);
  const std::vector<bool> slides = read_sliding_layers(json, spec.num_layers());
  read_head_shapes(json, slides, spec);
  read_windows(json, slides, spec, default_window);
  const LayerHeadDims head_dims{.full = find_head_dim(spec, slides, false, json),
                                .sliding = find_head_dim(spec, slides, true, json)};
  const bool has_ropes = json.has("rope_parameters");
  const RopeDefaults full{.theta = 1e6,
                          .type = has_ropes ? RopeType::kDefault : RopeType::kProportional,
                          .partial_rotary_factor = has_ropes ? 1.0 : 0.25};
  const LayerRopes ropes =
      read_layer_ropes(json, head_dims, spec.max_position_embeddings, full, {.theta = 1e4});
  spec.ropes = {ropes.full, ropes.sliding};
  share_kv(json, slides, spec);
}

void read_gemma4_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  read_gemma4_attention(json, defaults, /*default_window=*/512, spec);
  add_experts(json, spec);
}

void read_unified_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  read_gemma4_attention(json, defaults, /*default_window=*/1024, spec);
}

void read_layer_embeddings(const JsonNode& json, ModelSpec& spec) {
  constexpr const char* kSize = "hidden_size_per_layer_input";
  const bool is_null = json.mentions(kSize) && !json.has(kSize);
  const int size = is_null ? 0 : json.find_integer(kSize, 0, 1 << 16).value_or(256);
  if (size == 0) return;
  const int rows = json.find_integer("vocab_size_per_layer_input", 1, 1 << 30).value_or(262144);
  if (rows < spec.vocab_size)
    json.reject("vocab_size_per_layer_input", "at least vocab_size " + std::to_string(spec.vocab_size));
  spec.layer_embeddings = {.vocab_size = rows, .size = size};
}

// Reads the fields without embeddings per layer, which the unified model does not have.
void read_unified_config(const JsonNode& json, ModelSpec& spec) {
  // "vision": tokens of an image see each other. Text is causal.
  constexpr const char* kBidirectional = "use_bidirectional_attention";
  if (const auto value = json.find_string(kBidirectional); value && *value != "vision")
    json.at(kBidirectional).unsupported("\"" + *value + "\": attend generates with causal attention only");
  const bool bias = json.boolean_or("attention_bias", false);
  const bool k_as_v = json.boolean_or("attention_k_eq_v", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    const bool slides = attention.window_left >= 0;
    attention.qkv_bias = attention.output_bias = bias;
    attention.scale = 1.0f;
    attention.qk_norm = QkNormSpan::kHead;
    attention.v_norm = true;
    attention.k_as_v = k_as_v && !slides;
    attention.rope_set = slides ? kLocalRope : kGlobalRope;
  });
  for (LayerSpec& layer : spec.layers) layer.norms = {.before = true, .after = true};
  spec.embedding_scale = gemma_embedding_scale(spec.hidden_size, spec.dtype);
  spec.final_logit_cap = read_logit_cap(json, "final_logit_softcapping", 0.0f);
  spec.layer_scales = true;
}

void read_gemma4_config(const JsonNode& json, ModelSpec& spec) {
  read_unified_config(json, spec);
  read_layer_embeddings(json, spec);
}

constexpr ConfigDefaults gemma4_defaults(int image_token_id, int max_position_embeddings = 131072) {
  return {.vocab_size = 262144,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_layers = 30,
          .num_q_heads = 8,
          .num_kv_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = max_position_embeddings,
          .norm_eps = 1e-6,
          .tie_word_embeddings = true,
          .activation = "gelu_pytorch_tanh",
          .image_token_id = image_token_id,
          .keys = {.activation = "hidden_activation"}};
}

constexpr DecoderNames kGemma4Names{.layer_table = "model.embed_tokens_per_layer",
                                    .layer_table_proj = "model.per_layer_model_projection",
                                    .layer_table_norm = "model.per_layer_projection_norm",
                                    .layer_embedding_gate = "per_layer_input_gate",
                                    .layer_embedding_proj = "per_layer_projection",
                                    .layer_embedding_norm = "post_per_layer_input_norm",
                                    .layer_scale = "layer_scalar",
                                    .mlp_norm = "pre_feedforward_layernorm",
                                    .router = "router.proj",
                                    .experts = "experts",
                                    .router_norm = "router.scale",
                                    .expert_scales = "router.per_expert_scale",
                                    .dense_post_norm = "post_feedforward_layernorm_1",
                                    .moe_norm = "pre_feedforward_layernorm_2",
                                    .moe_post_norm = "post_feedforward_layernorm_2"};

constexpr WeightPrefix kGemma4Saved[] = {{"model.", "model.language_model."}};
constexpr WeightPrefixes kGemma4Prefixes[] = {kGemma4Saved};

}  // namespace

constinit const ModelArchitecture kGemma4{.name = "Gemma4ForCausalLM",
                                          .models = "Gemma 4 (text)",
                                          .read_layers = read_gemma4_layers,
                                          .read_config = read_gemma4_config,
                                          .defaults = gemma4_defaults(-1),
                                          .names = kGemma4Names};

constinit const ModelArchitecture kGemma4Multimodal{.name = "Gemma4ForConditionalGeneration",
                                                    .models = "Gemma 4 E2B, E4B, 26B-A4B, 31B",
                                                    .read_layers = read_gemma4_layers,
                                                    .read_config = read_gemma4_config,
                                                    .defaults = gemma4_defaults(258880),
                                                    .text_config = TextConfig::kNested,
                                                    .names = kGemma4Names,
                                                    .prefixes = kGemma4Prefixes,
                                                    .vision = &kGemma4Vision};

constinit const ModelArchitecture kGemma4Unified{.name = "Gemma4UnifiedForCausalLM",
                                                 .models = "Gemma 4 12B (text)",
                                                 .read_layers = read_unified_layers,
                                                 .read_config = read_unified_config,
                                                 .defaults = gemma4_defaults(-1, 262144),
                                                 .names = kGemma4Names};

constinit const ModelArchitecture kGemma4UnifiedMultimodal{.name = "Gemma4UnifiedForConditionalGeneration",
                                                           .models = "Gemma 4 12B (text)",
                                                           .read_layers = read_unified_layers,
                                                           .read_config = read_unified_config,
                                                           .defaults = gemma4_defaults(258880, 262144),
                                                           .text_config = TextConfig::kNested,
                                                           .names = kGemma4Names,
                                                           .prefixes = kGemma4Prefixes};

}  // namespace attend
