#include "attend/checkpoint/gguf/gguf_architectures.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr int64_t kMaxInteger = INT32_MAX;

// Names outside of layers.
constexpr GgufTensorName kGlobalNames[] = {{"token_embd", "model.embed_tokens"},
                                           {"output_norm", "model.norm"},
                                           {"output", "lm_head"},
                                           // Factors of rotary frequencies, which are part of the config.
                                           {"rope_freqs", ""},
                                           {"rope_factors_long", ""},
                                           {"rope_factors_short", ""}};

constexpr GgufTensorName kLayerNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

constexpr GgufTensorName kGemma2Names[] = {{"ffn_norm", "pre_feedforward_layernorm"}};
constexpr GgufTensorName kFusedMlpNames[] = {{"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufTensorName kGptOssNames[] = {{"ffn_gate_inp", "mlp.router"}};
constexpr GgufTensorName kGlm4Names[] = {{"ffn_up", "mlp.gate_up_proj"},
                                         {"post_attention_norm", "post_self_attn_layernorm"},
                                         {"post_ffw_norm", "post_mlp_layernorm"}};
constexpr GgufTensorName kMixtralNames[] = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                            {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                            {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                            {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}};
constexpr GgufTensorName kLfm2Names[] = {{"token_embd_norm", "model.embedding_norm"},
                                         {"attn_norm", "operator_norm"},
                                         {"attn_output", "self_attn.out_proj"},
                                         {"attn_q_norm", "self_attn.q_layernorm"},
                                         {"attn_k_norm", "self_attn.k_layernorm"},
                                         {"ffn_norm", "ffn_norm"},
                                         {"ffn_gate", "feed_forward.w1"},
                                         {"ffn_up", "feed_forward.w3"},
                                         {"ffn_down", "feed_forward.w2"},
                                         {"ffn_gate_inp", "feed_forward.gate"},
                                         {"exp_probs_b.bias", "feed_forward.expert_bias"},
                                         {"ffn_gate_exps", "feed_forward.experts.*.w1"},
                                         {"ffn_up_exps", "feed_forward.experts.*.w3"},
                                         {"ffn_down_exps", "feed_forward.experts.*.w2"},
                                         {"shortconv.in_proj", "conv.in_proj"},
                                         {"shortconv.conv", "conv.conv"},
                                         {"shortconv.out_proj", "conv.out_proj"}};

void set_if(Json& config, const char* key, const auto& value) {
  if (value) config[key] = *value;
}

void set_partial_rotary(const GgufModelMetadata& metadata, Json& config) {
  if (const auto dim = metadata.find_integer("rope.dimension_count"))
    config["partial_rotary_factor"] =
        static_cast<double>(*dim) / static_cast<double>(config["head_dim"].get<int64_t>());
}

// A Llama with experts is Mixtral.
void add_llama_fields(const GgufModelMetadata& metadata, Json& config) {
  const bool has_bias = metadata.file().find_tensor("blk.0.attn_q.bias") != nullptr;
  config["attention_bias"] = has_bias;
  if (metadata.find_integer("expert_count").value_or(0) == 0) return;
  config["architectures"] = {"MixtralForCausalLM"};
}

void add_qwen_fields(const GgufModelMetadata&, Json& config) { config["use_sliding_window"] = false; }

void add_qwen3_moe_fields(const GgufModelMetadata&, Json& config) {
  config["use_sliding_window"] = false;
  config["norm_topk_prob"] = true;  // ggml's graph of this architecture
}

// Layers of the pattern "all except each n-th slide".
void set_sliding_layers(Json& config, size_t full_every) {
  Json types = Json::array();
  for (size_t i = 0; i < config["num_hidden_layers"].get<size_t>(); ++i)
    types.push_back((i + 1) % full_every == 0 ? "full_attention" : "sliding_attention");
  config["layer_types"] = std::move(types);
}

void add_gemma_fields(const GgufModelMetadata&, Json& config) {
  config["tie_word_embeddings"] = true;
  config["hidden_activation"] = "gelu_pytorch_tanh";
}

// The scale of scores is not in the metadata: ggml's graph uses the hidden size per head for 27B models, and
// the head dim for the others.
void add_gemma2_fields(const GgufModelMetadata& metadata, Json& config) {
  add_gemma_fields(metadata, config);
  const int64_t num_layers = config["num_hidden_layers"].get<int64_t>();
  const bool is_27b = num_layers == 46;
  config["query_pre_attn_scalar"] =
      is_27b ? config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>()
             : config["head_dim"].get<int64_t>();
  set_if(config, "attn_logit_softcapping", metadata.find_number("attn_logit_softcapping"));
  set_if(config, "final_logit_softcapping", metadata.find_number("final_logit_softcapping"));
  set_sliding_layers(config, 2);
}

void add_gemma3_fields(const GgufModelMetadata& metadata, Json& config) {
  add_gemma_fields(metadata, config);
  const bool is_27b = config["num_hidden_layers"].get<int64_t>() == 62;
  config["query_pre_attn_scalar"] =
      is_27b ? config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>()
             : config["head_dim"].get<int64_t>();
  config["rope_local_base_freq"] = metadata.find_number("rope.freq_base_swa").value_or(10000.0);
  set_if(config, "final_logit_softcapping", metadata.find_number("final_logit_softcapping"));
  set_sliding_layers(config, 6);
}

void add_phi3_fields(const GgufModelMetadata& metadata, Json& config) {
  set_partial_rotary(metadata, config);
  set_if(config, "original_max_position_embeddings",
         metadata.find_integer("rope.scaling.original_context_length"));
  if (config.contains("sliding_window") && config["sliding_window"] == 0) config.erase("sliding_window");
}

void add_glm4_fields(const GgufModelMetadata& metadata, Json& config) {
  set_partial_rotary(metadata, config);
  config["attention_bias"] = metadata.file().find_tensor("blk.0.attn_q.bias") != nullptr;
}

void add_granite_fields(const GgufModelMetadata& metadata, Json& config) {
  set_if(config, "attention_multiplier", metadata.find_number("attention.scale"));
  set_if(config, "embedding_multiplier", metadata.find_number("embedding_scale"));
  set_if(config, "residual_multiplier", metadata.find_number("residual_scale"));
  set_if(config, "logits_scaling", metadata.find_number("logit_scale"));
}

// Every fourth layer has no rotary embedding; the interval is not in the metadata.
void add_smollm3_fields(const GgufModelMetadata&, Json& config) { config["no_rope_layer_interval"] = 4; }

void add_olmoe_fields(const GgufModelMetadata&, Json& config) { config["norm_topk_prob"] = false; }

// Layers without K/V heads are convolutions.
void add_lfm2_fields(const GgufModelMetadata& metadata, Json& config) {
  const auto num_layers = config["num_hidden_layers"].get<size_t>();
  Json types = Json::array();
  for (const int64_t heads : metadata.per_layer("attention.head_count_kv", num_layers)) {
    types.push_back(heads == 0 ? "conv" : "full_attention");
    if (heads != 0) config["num_key_value_heads"] = heads;
  }
  config["layer_types"] = std::move(types);
  config["block_auto_adjust_ff_dim"] = false;  // the metadata has the adjusted size
  config["conv_L_cache"] = metadata.integer("shortconv.l_cache");
  config["norm_eps"] = config["rms_norm_eps"];
}

void add_lfm2_moe_fields(const GgufModelMetadata& metadata, Json& config) {
  add_lfm2_fields(metadata, config);
  config["num_dense_layers"] = metadata.integer("leading_dense_block_count");
}

// Experts of DeepSeek and of models with the same ones.
void add_deepseek_expert_fields(const GgufModelMetadata& metadata, Json& config) {
  config["n_routed_experts"] = metadata.integer("expert_count");
  config["n_shared_experts"] = metadata.find_integer("expert_shared_count").value_or(0);
  config["first_k_dense_replace"] = metadata.find_integer("leading_dense_block_count").value_or(0);
  config["routed_scaling_factor"] = metadata.find_number("expert_weights_scale").value_or(1.0);
  config["norm_topk_prob"] = metadata.find_boolean("expert_weights_norm").value_or(false);
  config["n_group"] = metadata.find_integer("expert_group_count").value_or(1);
  config["topk_group"] = metadata.find_integer("expert_group_used_count").value_or(1);
}

// Layers for multi-token prediction are counted as layers.
void add_glm4_moe_fields(const GgufModelMetadata& metadata, Json& config) {
  add_glm4_fields(metadata, config);
  add_deepseek_expert_fields(metadata, config);
  const int64_t num_layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t num_drafts = metadata.find_integer("nextn_predict_layers").value_or(0);
  if (num_drafts >= num_layers)
    metadata.file().reject(metadata.key("nextn_predict_layers"),
                           "fewer than the " + std::to_string(num_layers) + " layers");
  config["num_hidden_layers"] = num_layers - num_drafts;
  config["use_qk_norm"] = metadata.file().find_tensor("blk.0.attn_q_norm.weight") != nullptr;
}

void add_dots1_fields(const GgufModelMetadata& metadata, Json& config) {
  add_deepseek_expert_fields(metadata, config);
  if (!config.contains("sliding_window")) config["sliding_window"] = nullptr;
}

// Latent attention: metadata has the sizes of keys and values per head.
void add_deepseek2_fields(const GgufModelMetadata& metadata, Json& config) {
  const int64_t rope_dim = metadata.integer("rope.dimension_count");
  // Newer files have the sizes of the latent row in key_length, and those of heads in key_length_mla.
  const auto key_length = metadata.find_integer("attention.key_length_mla");
  const auto value_length = metadata.find_integer("attention.value_length_mla");
  config.erase("head_dim");
  config.erase("num_key_value_heads");
  config["qk_rope_head_dim"] = rope_dim;
  config["qk_nope_head_dim"] =
      (key_length ? *key_length : metadata.integer("attention.key_length")) - rope_dim;
  config["v_head_dim"] = value_length ? *value_length : metadata.integer("attention.value_length");
  config["kv_lora_rank"] = metadata.integer("attention.kv_lora_rank");
  const auto q_lora_rank = metadata.find_integer("attention.q_lora_rank");
  config["q_lora_rank"] = q_lora_rank && *q_lora_rank > 0 ? Json(*q_lora_rank) : Json(nullptr);
  add_deepseek_expert_fields(metadata, config);
  const bool sigmoid = metadata.find_integer("expert_gating_func").value_or(1) == 2;
  if (sigmoid) config["architectures"] = {"DeepseekV3ForCausalLM"};
  if (!sigmoid)
    config["topk_method"] = config["n_group"].get<int64_t>() > 1 ? "group_limited_greedy" : "greedy";
}

// Windows in every other layer, from the first one on. Frequencies of YaRN are not truncated to integers.
void add_gpt_oss_fields(const GgufModelMetadata& metadata, Json& config) {
  config["attention_bias"] = metadata.file().find_tensor("blk.0.attn_q.bias") != nullptr;
  if (const auto size = metadata.find_integer("expert_feed_forward_length"))
    config["intermediate_size"] = *size;
  if (config.contains("rope_scaling")) config["rope_scaling"]["truncate"] = false;
  set_sliding_layers(config, 2);
}

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "deepseek2",
     .hf = "DeepseekV2ForCausalLM",
     .prefers_bf16 = true,
     .add_fields = add_deepseek2_fields},
    {.name = "dots1", .hf = "Dots1ForCausalLM", .prefers_bf16 = true, .add_fields = add_dots1_fields},
    {.name = "gemma",
     .hf = "GemmaForCausalLM",
     .adds_one_to_norms = true,
     .prefers_bf16 = true,
     .add_fields = add_gemma_fields},
    {.name = "gemma2",
     .hf = "Gemma2ForCausalLM",
     .names = kGemma2Names,
     .adds_one_to_norms = true,
     .prefers_bf16 = true,
     .add_fields = add_gemma2_fields},
    {.name = "gemma3",
     .hf = "Gemma3ForCausalLM",
     .names = kGemma2Names,
     .adds_one_to_norms = true,
     .prefers_bf16 = true,
     .add_fields = add_gemma3_fields},
    {.name = "glm4", .hf = "Glm4ForCausalLM", .names = kGlm4Names, .add_fields = add_glm4_fields},
    {.name = "glm4moe", .hf = "Glm4MoeForCausalLM", .prefers_bf16 = true, .add_fields = add_glm4_moe_fields},
    {.name = "gpt-oss",
     .hf = "GptOssForCausalLM",
     .names = kGptOssNames,
     .prefers_bf16 = true,
     .add_fields = add_gpt_oss_fields},
    {.name = "granite",
     .hf = "GraniteForCausalLM",
     .interleaves_rope = true,
     .add_fields = add_granite_fields},
    {.name = "lfm2", .hf = "Lfm2ForCausalLM", .names = kLfm2Names, .add_fields = add_lfm2_fields},
    {.name = "lfm2moe", .hf = "Lfm2MoeForCausalLM", .names = kLfm2Names, .add_fields = add_lfm2_moe_fields},
    {.name = "llama",
     .hf = "LlamaForCausalLM",
     .names = kMixtralNames,
     .interleaves_rope = true,
     .add_fields = add_llama_fields},
    {.name = "olmo2", .hf = "Olmo2ForCausalLM"},
    {.name = "olmoe", .hf = "OlmoeForCausalLM", .add_fields = add_olmoe_fields},
    {.name = "phi3", .hf = "Phi3ForCausalLM", .names = kFusedMlpNames, .add_fields = add_phi3_fields},
    {.name = "qwen2", .hf = "Qwen2ForCausalLM", .add_fields = add_qwen_fields},
    {.name = "qwen3", .hf = "Qwen3ForCausalLM", .add_fields = add_qwen_fields},
    {.name = "qwen3moe", .hf = "Qwen3MoeForCausalLM", .add_fields = add_qwen3_moe_fields},
    {.name = "smollm3",
     .hf = "SmolLM3ForCausalLM",
     .interleaves_rope = true,
     .add_fields = add_smollm3_fields},
};

constexpr std::string_view kEndings[] = {".weight", ".bias"};

// Returns the translation of a name without its prefix, or no value.
std::optional<std::string> translate(std::span<const GgufTensorName> names, std::string_view name) {
  for (const auto& [gguf, hf] : names)
    if (gguf == name) return std::string(hf);
  for (const std::string_view ending : kEndings) {
    if (!name.ends_with(ending)) continue;
    const std::string_view stem = name.substr(0, name.size() - ending.size());
    for (const auto& [gguf, hf] : names)
      if (gguf == stem) return hf.empty() ? "" : std::string(hf) + std::string(ending);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> GgufModelMetadata::find_integer(std::string_view name) const {
  const auto value = file_.find_integer(key(name));
  if (value && (*value < 0 || *value > kMaxInteger))
    file_.reject(key(name), "an integer from 0 to " + std::to_string(kMaxInteger));
  return value;
}

int64_t GgufModelMetadata::integer(std::string_view name) const {
  const auto value = find_integer(name);
  if (!value) file_.reject(key(name), "an integer");
  return *value;
}

std::vector<int64_t> GgufModelMetadata::per_layer(std::string_view name, size_t num_layers) const {
  const GgufValue* const value = file_.find(key(name));
  if (value == nullptr || !std::holds_alternative<GgufArray>(*value))
    return std::vector<int64_t>(num_layers, integer(name));
  std::vector<int64_t> values = file_.find_integers(key(name)).value();
  if (values.size() != num_layers ||
      std::ranges::any_of(values, [](int64_t each) { return each < 0 || each > kMaxInteger; }))
    file_.reject(key(name), std::to_string(num_layers) + " integers, one per layer, from 0 to " +
                                std::to_string(kMaxInteger));
  return values;
}

const GgufArchitecture& find_gguf_architecture(const GgufFile& file) {
  const std::string_view name = file.text("general.architecture");
  const auto* const found = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  if (found != std::end(kArchitectures)) return *found;
  std::string known;
  for (const GgufArchitecture& each : kArchitectures)
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  fail(ErrorCode::kUnsupported, file.name(), ": metadata \"general.architecture\" ",
       excerpt(std::string(name)), ": attend supports ", known);
}

std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name) {
  constexpr std::string_view kLayers = "blk.";
  if (!gguf_name.starts_with(kLayers)) {
    auto name = translate(architecture.names, gguf_name);
    if (!name) name = translate(kGlobalNames, gguf_name);
    return name.value_or(std::string(gguf_name));
  }
  const size_t dot = gguf_name.find('.', kLayers.size());
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string_view part = gguf_name.substr(dot + 1);
  auto name = translate(architecture.names, part);
  if (!name) name = translate(kLayerNames, part);
  if (!name) return std::string(gguf_name);
  return "model.layers." + std::string(gguf_name.substr(kLayers.size(), dot + 1 - kLayers.size())) + *name;
}

}  // namespace attend
