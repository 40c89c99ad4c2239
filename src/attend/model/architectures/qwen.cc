// Architectures of the Qwen models.
#include <string>
#include <variant>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/architectures/hybrid/gated_delta.h"

namespace attend {

// Qwen2ForCausalLM: Llama with biases for q, k and v, and a window in some layers. Also the text model of
// Qwen2VLForConditionalGeneration and Qwen2_5_VLForConditionalGeneration.
namespace {

void read_qwen2_config(const JsonNode& json, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.qkv_bias = true; });
  read_layer_windows(json, spec);
}

// Names in newer checkpoints. Older ones have the names of Qwen2ForCausalLM.
constexpr WeightPrefix kQwenVlText[] = {{"model.", "model.language_model."}};
constexpr WeightPrefixes kQwenVlPrefixes[] = {kQwenVlText};

constexpr ConfigDefaults qwen2_vl_defaults() {
  return {.num_kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 1e6}, .image_token_id = 151655};
}

}  // namespace

constinit const ModelArchitecture kQwen2{.name = "Qwen2ForCausalLM",
                                         .models = "Qwen 2, 2.5, QwQ",
                                         .read_config = read_qwen2_config,
                                         .defaults = {.num_kv_heads = 32}};

constinit const ModelArchitecture kQwen2Vl{.name = "Qwen2VLForConditionalGeneration",
                                           .models = "Qwen2-VL (text)",
                                           .read_config = read_qwen2_config,
                                           .defaults = qwen2_vl_defaults(),
                                           .text_config = TextConfig::kEither,
                                           .prefixes = kQwenVlPrefixes};

constinit const ModelArchitecture kQwen25Vl{.name = "Qwen2_5_VLForConditionalGeneration",
                                            .models = "Qwen2.5-VL",
                                            .read_config = read_qwen2_config,
                                            .defaults = qwen2_vl_defaults(),
                                            .text_config = TextConfig::kEither,
                                            .prefixes = kQwenVlPrefixes,
                                            .vision = &kQwen25Vision};

// Qwen3ForCausalLM: Llama with an RMSNorm of each q and k head before RoPE, and a window in some layers. Also
// the text model of Qwen3VLForConditionalGeneration.
namespace {

void read_qwen3_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.find_boolean("attention_bias").value_or(false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qk_norm = QkNormSpan::kHead;
    attention.qkv_bias = attention.output_bias = bias;
  });
  read_layer_windows(json, spec);
}

// Names in embedding models, which are published without a head and without the prefix of the decoder.
constexpr WeightPrefix kQwen3Bare[] = {{"model.", ""}};
constexpr WeightPrefixes kQwen3Prefixes[] = {kQwen3Bare};

}  // namespace

constinit const ModelArchitecture kQwen3{.name = "Qwen3ForCausalLM",
                                         .models = "Qwen 3, Qwen 3 Embedding",
                                         .read_config = read_qwen3_config,
                                         .defaults = {.num_kv_heads = 32, .head_dim = 128},
                                         .prefixes = kQwen3Prefixes};

constinit const ModelArchitecture kQwen3Vl{
    .name = "Qwen3VLForConditionalGeneration",
    .models = "Qwen3-VL",
    .read_config = read_qwen3_config,
    .defaults = {.num_kv_heads = 32, .head_dim = 128, .rope = {.theta = 500000.0}, .image_token_id = 151655},
    .text_config = TextConfig::kNested,
    .prefixes = kQwenVlPrefixes,
    .vision = &kQwen3Vision};

// Qwen3MoeForCausalLM: Qwen3 with experts in all layers except those that mlp_only_layers and
// decoder_sparse_step define as dense. With use_sliding_window, all layers have a window. Also the text model
// of Qwen3VLMoeForConditionalGeneration, with all experts of a layer in one tensor.
namespace {

// Returns for each layer whether mlp_only_layers lists it.
std::vector<bool> read_mlp_only_layers(const JsonNode& json, size_t num_layers) {
  std::vector<bool> dense(num_layers, false);
  const auto layers = json.find("mlp_only_layers");
  if (!layers) return dense;
  for (size_t i = 0; i < layers->array_size(); ++i)
    dense[static_cast<size_t>(layers->at(i).integer(0, static_cast<int>(num_layers) - 1))] = true;
  return dense;
}

// Sets experts in every layer that mlp_only_layers and decoder_sparse_step do not define as dense.
void set_expert_layers(const JsonNode& json, const MoeMlpSpec& experts, ModelSpec& spec) {
  const auto step = static_cast<size_t>(json.find_integer("decoder_sparse_step", 1, 1 << 16).value_or(1));
  const std::vector<bool> dense = read_mlp_only_layers(json, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (!dense[i] && (i + 1) % step == 0) spec.layers[i].mlp = experts;
}

// Reads experts with a gated shared expert.
MoeMlpSpec read_shared_experts(const JsonNode& json, const MoeDefaults& defaults, int shared_size = 512) {
  MoeMlpSpec experts = read_moe_mlp(json, defaults);
  experts.shared_intermediate_size =
      json.find_integer("shared_expert_intermediate_size", 1, 1 << 24).value_or(shared_size);
  experts.shared_gate = true;
  return experts;
}

constexpr DecoderNames shared_expert_names() {
  return {.shared_gate_proj = "mlp.shared_expert.gate_proj",
          .shared_up_proj = "mlp.shared_expert.up_proj",
          .shared_down_proj = "mlp.shared_expert.down_proj"};
}

kernels::RouterWeights read_router_weights(const JsonNode& json, bool normalized) {
  return json.boolean_or("norm_topk_prob", normalized) ? kernels::RouterWeights::kChosenExperts
                                                       : kernels::RouterWeights::kAllExperts;
}

void read_qwen3_moe_attention(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qk_norm = QkNormSpan::kHead;
    attention.qkv_bias = attention.output_bias = bias;
  });
}

void read_qwen3_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_qwen3_moe_attention(json, spec);
  if (json.boolean_or("use_sliding_window", false))
    read_windows(json, std::vector<bool>(spec.layers.size(), true), spec);
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 128, .top_k = 8, .intermediate_size = 768});
  experts.rule.weights = read_router_weights(json, false);
  set_expert_layers(json, experts, spec);
}

void read_qwen3_vl_moe_config(const JsonNode& json, ModelSpec& spec) {
  read_qwen3_moe_attention(json, spec);
  MoeMlpSpec experts = read_moe_mlp(json, {.num_experts = 60, .top_k = 4, .intermediate_size = 1408});
  experts.fused_experts = true;
  set_expert_layers(json, experts, spec);
}

}  // namespace

constinit const ModelArchitecture kQwen3Moe{.name = "Qwen3MoeForCausalLM",
                                            .models = "Qwen3-30B-A3B, 235B-A22B, Qwen3-Coder",
                                            .read_config = read_qwen3_moe_config,
                                            .defaults = {.intermediate_size = 6144, .num_kv_heads = 4}};

constinit const ModelArchitecture kQwen3VlMoe{.name = "Qwen3VLMoeForConditionalGeneration",
                                              .models = "Qwen3-VL-30B-A3B, 235B-A22B",
                                              .read_config = read_qwen3_vl_moe_config,
                                              .defaults = {.intermediate_size = 5632,
                                                           .num_kv_heads = 16,
                                                           .rope = {.theta = 500000.0},
                                                           .image_token_id = 151655},
                                              .text_config = TextConfig::kNested,
                                              .prefixes = kQwenVlPrefixes,
                                              .vision = &kQwen3Vision};

// Qwen2MoeForCausalLM: Qwen 2 with experts and a gated shared expert in all layers except those that
// mlp_only_layers and decoder_sparse_step define as dense.
namespace {

// Sets windows for the sliding layers of layer_types or, if it is absent, for every other layer below
// max_window_layers.
void read_qwen2_moe_windows(const JsonNode& json, ModelSpec& spec) {
  if (!json.boolean_or("use_sliding_window", false)) return;
  const int last = json.find_integer("max_window_layers", 0, 1 << 30).value_or(28);
  std::vector<bool> slides;
  if (const auto types = json.find("layer_types"))
    slides = read_layer_types(*types, spec.num_layers());
  else
    for (int i = 0; i < spec.num_layers(); ++i) slides.push_back(i % 2 == 0 && i < last);
  read_windows(json, slides, spec);
}

void read_qwen2_moe_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("qkv_bias", true);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.qkv_bias = bias; });
  read_qwen2_moe_windows(json, spec);
  MoeMlpSpec experts =
      read_shared_experts(json, {.num_experts = 60, .top_k = 4, .intermediate_size = 1408}, 5632);
  experts.rule.weights = read_router_weights(json, false);
  set_expert_layers(json, experts, spec);
}

}  // namespace

constinit const ModelArchitecture kQwen2Moe{.name = "Qwen2MoeForCausalLM",
                                            .models = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
                                            .read_config = read_qwen2_moe_config,
                                            .defaults = {.intermediate_size = 5632, .num_kv_heads = 16},
                                            .names = shared_expert_names()};

// Qwen3NextForCausalLM: gated delta net in most layers and attention with an output gate in the others, with
// experts and a gated shared expert. Qwen3_5.. has the same layers, with projections that are not grouped by
// key head, and Qwen3_5Moe.. also has experts.
namespace {

void read_hybrid_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  read_dense_layers(json, defaults, spec);
  const bool bias = json.boolean_or("attention_bias", false);
  const bool output_gate = json.boolean_or("attn_output_gate", true);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qk_norm = QkNormSpan::kHead;
    attention.qkv_bias = attention.output_bias = bias;
    attention.output_gate = output_gate ? OutputGate::kAfterQ : OutputGate::kNone;
  });
  spec.zero_centered_norms = true;
  const GatedDeltaSpec delta = read_gated_delta(json, {.num_k_heads = 16,
                                                       .num_v_heads = 32,
                                                       .head_dim_k = 128,
                                                       .head_dim_v = 128,
                                                       .norm_eps = spec.norm_eps});
  const std::vector<bool> linear = read_linear_layers(json, spec.layers.size());
  for (size_t i = 0; i < linear.size(); ++i)
    if (linear[i]) spec.layers[i].mixer = delta;
}

void read_qwen3_next_config(const JsonNode& json, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    if (auto* const delta = std::get_if<GatedDeltaSpec>(&layer.mixer)) delta->grouped_projections = true;
  MoeMlpSpec experts = read_shared_experts(json, {.num_experts = 512, .top_k = 10, .intermediate_size = 512});
  experts.rule.weights = read_router_weights(json, true);
  set_expert_layers(json, experts, spec);
}

void read_qwen3_5_moe_config(const JsonNode& json, ModelSpec& spec) {
  MoeMlpSpec experts = read_shared_experts(json, {.num_experts = 256, .top_k = 8, .intermediate_size = 512});
  experts.fused_experts = experts.fused_expert_rows = true;
  for (LayerSpec& layer : spec.layers) layer.mlp = experts;
}

constexpr ConfigDefaults hybrid_defaults(int intermediate_size, int num_kv_heads, int image_token_id) {
  return {.intermediate_size = intermediate_size,
          .num_q_heads = 16,
          .num_kv_heads = num_kv_heads,
          .head_dim = 256,
          .max_position_embeddings = 32768,
          .rope = {.partial_rotary_factor = 0.25},
          .image_token_id = image_token_id};
}

constexpr int kQwen35ImageToken = 248056;

}  // namespace

constinit const ModelArchitecture kQwen3Next{.name = "Qwen3NextForCausalLM",
                                             .models = "Qwen3-Next-80B-A3B",
                                             .read_layers = read_hybrid_layers,
                                             .read_config = read_qwen3_next_config,
                                             .defaults = hybrid_defaults(5632, 2, -1),
                                             .prediction = &kQwen3NextPrediction,
                                             .names = shared_expert_names()};

constinit const ModelArchitecture kQwen35Text{.name = "Qwen3_5ForCausalLM",
                                              .models = "Qwen 3.5, 3.6 (text)",
                                              .read_layers = read_hybrid_layers,
                                              .defaults = hybrid_defaults(12288, 4, -1),
                                              .text_config = TextConfig::kEither,
                                              .prediction = &kQwen3NextPrediction,
                                              .names = shared_expert_names(),
                                              .prefixes = kQwenVlPrefixes};

constinit const ModelArchitecture kQwen35{.name = "Qwen3_5ForConditionalGeneration",
                                          .models = "Qwen 3.5, 3.6 27B",
                                          .read_layers = read_hybrid_layers,
                                          .defaults = hybrid_defaults(12288, 4, kQwen35ImageToken),
                                          .text_config = TextConfig::kNested,
                                          .prediction = &kQwen3NextPrediction,
                                          .names = shared_expert_names(),
                                          .prefixes = kQwenVlPrefixes,
                                          .vision = &kQwen35Vision};

constinit const ModelArchitecture kQwen35MoeText{.name = "Qwen3_5MoeForCausalLM",
                                                 .models = "Qwen 3.5, 3.6 with experts (text)",
                                                 .read_layers = read_hybrid_layers,
                                                 .read_config = read_qwen3_5_moe_config,
                                                 .defaults = hybrid_defaults(512, 2, -1),
                                                 .text_config = TextConfig::kEither,
                                                 .prediction = &kQwen3NextPrediction,
                                                 .names = shared_expert_names(),
                                                 .prefixes = kQwenVlPrefixes};

constinit const ModelArchitecture kQwen35Moe{.name = "Qwen3_5MoeForConditionalGeneration",
                                             .models = "Qwen 3.5, 3.6 35B-A3B, 122B-A10B",
                                             .read_layers = read_hybrid_layers,
                                             .read_config = read_qwen3_5_moe_config,
                                             .defaults = hybrid_defaults(512, 2, kQwen35ImageToken),
                                             .text_config = TextConfig::kNested,
                                             .prediction = &kQwen3NextPrediction,
                                             .names = shared_expert_names(),
                                             .prefixes = kQwenVlPrefixes,
                                             .vision = &kQwen35Vision};

}  // namespace attend
