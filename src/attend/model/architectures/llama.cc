// Architectures of the Llama models.
#include <algorithm>

#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {

// LlamaForCausalLM: the decoder that other architectures are described by. attention_bias applies to q, k, v
// and o.
namespace {

void read_llama_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.find_boolean("attention_bias").value_or(false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  const bool mlp_bias = json.find_boolean("mlp_bias").value_or(false);
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
}

}  // namespace

constinit const ModelArchitecture kLlama{.name = "LlamaForCausalLM",
                                         .models = "Llama 2, 3.x; SmolLM 2, TinyLlama, Falcon 3",
                                         .read_config = read_llama_config};

// Llama4ForCausalLM, and the text model of Llama4ForConditionalGeneration. Most layers have chunked local
// attention. The others have full attention without RoPE, and a query temperature that depends on the
// position. Weights of experts scale their inputs, and a shared expert runs for every token.
namespace {

constexpr int kMaxField = 1 << 30;

// Returns for each layer whether it has chunked attention, from layer_types. If it is absent, layers with
// RoPE do.
std::vector<bool> read_chunked(const JsonNode& json, const std::vector<bool>& rotated) {
  const auto types = json.find("layer_types");
  if (!types) return rotated;
  const std::string expected =
      "an array of " + std::to_string(rotated.size()) + " times \"chunked_attention\" or \"full_attention\"";
  if (!types->value().is_array() || types->value().size() != rotated.size()) types->reject(expected);
  std::vector<bool> chunked;
  for (const Json& type : types->value()) {
    const bool chunk = is_string(type, "chunked_attention");
    if (!chunk && !is_string(type, "full_attention")) types->reject(expected);
    chunked.push_back(chunk);
  }
  return chunked;
}

// Returns for each layer whether it has experts.
std::vector<bool> read_sparse_layers(const JsonNode& json, size_t num_layers) {
  std::vector<bool> sparse(num_layers, false);
  if (const auto layers = json.find("moe_layers")) {
    for (size_t i = 0; i < layers->array_size(); ++i)
      sparse[static_cast<size_t>(layers->at(i).integer(0, static_cast<int>(num_layers) - 1))] = true;
    return sparse;
  }
  const auto step =
      static_cast<size_t>(json.find_integer("interleave_moe_layer_step", 1, 1 << 16).value_or(1));
  for (size_t i = step - 1; i < num_layers; i += step) sparse[i] = true;
  return sparse;
}

// Old configs have a number instead of a boolean; 0 is false.
bool read_tuning(const JsonNode& json) {
  constexpr const char* kKey = "attn_temperature_tuning";
  const auto field = json.find(kKey);
  if (!field) return true;
  return field->value().is_number_integer() ? field->integer(0, kMaxField) != 0 : field->boolean();
}

void read_llama4_config(const JsonNode& json, ModelSpec& spec) {
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
  const size_t num_layers = spec.layers.size();
  const std::vector<bool> rotated = read_rotated_layers(json, num_layers),
                          sparse = read_sparse_layers(json, num_layers);
  const std::vector<bool> chunked = read_chunked(json, rotated);
  const bool some_chunk = std::ranges::find(chunked, true) != chunked.end();
  if (some_chunk && json.mentions("attention_chunk_size") && !json.has("attention_chunk_size"))
    fail(ErrorCode::kCorruptFile, json.where("attention_chunk_size"),
         " null: expected the chunk size of layers with chunked attention");
  const int chunk = json.find_integer("attention_chunk_size", 1, kMaxField).value_or(8192);
  const bool qk_norm = json.boolean_or("use_qk_norm", true), bias = json.boolean_or("attention_bias", false);
  const kernels::QueryTemperature temperature{
      .slope = static_cast<float>(json.find_positive("attn_scale").value_or(0.1)),
      .floor_scale = static_cast<float>(json.find_integer("floor_scale", 1, kMaxField).value_or(8192))};
  const bool tunes = read_tuning(json);

  MoeMlpSpec experts = read_moe_mlp(
      json,
      {.num_experts = 16, .top_k = 1, .intermediate_key = "intermediate_size", .intermediate_size = 8192});
  experts.rule = {.scores = kernels::RouterScores::kSigmoid, .weights = kernels::RouterWeights::kAllExperts};
  experts.weights_scale_input = experts.fused_experts = true;
  experts.shared_intermediate_size = experts.intermediate_size;
  const int dense_size = json.find_integer("intermediate_size_mlp", 1, kMaxField).value_or(16384);
  for (size_t i = 0; i < num_layers; ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    attention.qkv_bias = attention.output_bias = bias;
    if (chunked[i]) attention.chunk = chunk;
    if (rotated[i] && qk_norm) attention.qk_norm = QkNormSpan::kHeadAfterRope;
    if (!rotated[i]) attention.rope_set = -1;
    if (!rotated[i] && tunes) attention.temperature = temperature;
    if (sparse[i])
      spec.layers[i].mlp = experts;
    else
      std::get<GatedMlpSpec>(spec.layers[i].mlp).intermediate_size = dense_size;
  }
}

constexpr ConfigDefaults llama4_defaults(int image_token_id) {
  return {.vocab_size = 202048,
          .hidden_size = 5120,
          .intermediate_size = 8192,
          .num_layers = 48,
          .num_q_heads = 40,
          .num_kv_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .norm_eps = 1e-5,
          .rope = {.theta = 500000.0},
          .image_token_id = image_token_id};
}

constexpr DecoderNames kLlama4Names{.gate_proj = "feed_forward.gate_proj",
                                    .up_proj = "feed_forward.up_proj",
                                    .down_proj = "feed_forward.down_proj",
                                    .router = "feed_forward.router",
                                    .experts = "feed_forward.experts",
                                    .shared_gate_proj = "feed_forward.shared_expert.gate_proj",
                                    .shared_up_proj = "feed_forward.shared_expert.up_proj",
                                    .shared_down_proj = "feed_forward.shared_expert.down_proj"};

constexpr WeightPrefix kLlama4Text[] = {{"", "language_model."}};
constexpr WeightPrefixes kLlama4Prefixes[] = {kLlama4Text};

}  // namespace

constinit const ModelArchitecture kLlama4{.name = "Llama4ForCausalLM",
                                          .models = "Llama 4 (text)",
                                          .read_config = read_llama4_config,
                                          .defaults = llama4_defaults(-1),
                                          .names = kLlama4Names,
                                          .prefixes = kLlama4Prefixes};

constinit const ModelArchitecture kLlama4Multimodal{.name = "Llama4ForConditionalGeneration",
                                                    .models = "Llama 4 Scout, Maverick (text)",
                                                    .read_config = read_llama4_config,
                                                    .defaults = llama4_defaults(200092),
                                                    .text_config = TextConfig::kNested,
                                                    .names = kLlama4Names,
                                                    .prefixes = kLlama4Prefixes};

}  // namespace attend
