#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"
#include "attend/model/architectures/architecture.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/config/read_classifier.h"
#include "attend/model/config/read_image_processor.h"
#include "attend/model/config/read_rope.h"

namespace attend {
namespace {

// Larger than the sizes of any model, and small enough that products of two fit int64.
constexpr int kMaxExtent = 1 << 30;

std::string read_architecture_name(const JsonNode& json) {
  const auto names = json.find("architectures");
  if (!names || !names->value().is_array() || names->value().size() != 1 || !names->value()[0].is_string())
    json.reject("architectures", "an array of one name");
  return names->at(size_t{0}).string();
}

// Reads a size. If it is absent, returns `missing`; if that is 0, the field is required.
int read_size(const JsonNode& json, const char* key, int missing, int largest = kMaxExtent) {
  return missing == 0 ? json.integer(key, 1, largest) : json.find_integer(key, 1, largest).value_or(missing);
}

// Old versions of transformers write torch_dtype, new ones dtype.
DType read_dtype(const JsonNode& json) {
  const char* key = json.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = json.find_string(key).value_or("float32");
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    if (name == to_string(dtype)) return dtype;
  fail(ErrorCode::kUnsupported, json.where(key), " \"", name,
       "\": attend supports float32, float16, bfloat16");
}

kernels::Activation read_activation(const JsonNode& json, const ConfigDefaults& defaults) {
  const char* const key = defaults.keys.activation;
  const std::string name = json.find_string(key).value_or(std::string(defaults.activation));
  if (name == "silu") return kernels::Activation::kSilu;
  if (name == "gelu_pytorch_tanh") return kernels::Activation::kGeluTanh;
  fail(ErrorCode::kUnsupported, json.where(key), " \"", name, "\": attend supports silu, gelu_pytorch_tanh");
}

kernels::PlainActivation read_plain_activation(const JsonNode& json, const ConfigDefaults& defaults) {
  using kernels::PlainActivation;
  constexpr std::pair<std::string_view, PlainActivation> kPlainActivations[] = {
      {"gelu", PlainActivation::kGelu},          {"gelu_new", PlainActivation::kGeluTanh},
      {"gelu_fast", PlainActivation::kGeluTanh}, {"gelu_pytorch_tanh", PlainActivation::kGeluTanh},
      {"relu", PlainActivation::kRelu},          {"relu2", PlainActivation::kRelu2},
      {"silu", PlainActivation::kSilu},          {"xielu", PlainActivation::kXielu}};
  const char* const key = defaults.keys.activation;
  const std::string name = json.find_string(key).value_or(std::string(defaults.activation));
  std::string known;
  for (const auto& [activation_name, activation] : kPlainActivations) {
    if (name == activation_name) return activation;
    known += (known.empty() ? "" : ", ") + std::string(activation_name);
  }
  fail(ErrorCode::kUnsupported, json.where(key), " \"", name, "\": attend supports ", known);
}

// Old versions of transformers write image_token_index, new ones image_token_id.
int32_t read_image_token(const JsonNode& json, const ConfigDefaults& defaults) {
  for (const char* key : {"image_token_id", "image_token_index"})
    if (const auto token = json.find(key)) return token->token_id();
  return defaults.image_token_id;
}

// Accepts one token id or an array of ids.
void add_eos_tokens(const JsonNode& json, std::vector<int32_t>& ids) {
  const auto field = json.find("eos_token_id");
  if (!field) return;
  const auto add = [&](int32_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  if (!field->value().is_array()) return add(field->token_id());
  for (size_t i = 0; i < field->array_size(); ++i) add(field->at(i).token_id());
}

}  // namespace

double read_activation_factor(const JsonNode& json, const char* key) {
  constexpr double kLargest = 1 << 16;
  const double multiplier = json.find_positive(key).value_or(1.0);
  if (multiplier > kLargest || multiplier < 1.0 / kLargest)
    json.reject(key, "a number from 1 / 65536 to 65536");
  return multiplier;
}

AttentionSpec read_attention(const JsonNode& json, const ConfigDefaults& defaults, int hidden_size) {
  const ConfigKeys& keys = defaults.keys;
  const int num_q_heads = read_size(json, keys.num_q_heads, defaults.num_q_heads, 1 << 16);
  int num_kv_heads = num_q_heads;
  if (defaults.num_kv_heads != 0 && !json.mentions(keys.num_kv_heads)) num_kv_heads = defaults.num_kv_heads;
  num_kv_heads = json.find_integer(keys.num_kv_heads, 1, 1 << 16).value_or(num_kv_heads);
  if (num_q_heads % num_kv_heads != 0)
    fail(ErrorCode::kCorruptFile, json.where(keys.num_kv_heads), " ", num_kv_heads,
         ": expected a divisor of ", keys.num_q_heads, " ", num_q_heads);

  int head_dim = json.find_integer("head_dim", 1, 1 << 16).value_or(defaults.head_dim);
  if (head_dim == 0) {
    if (hidden_size % num_q_heads != 0)
      fail(ErrorCode::kCorruptFile, json.where(keys.hidden_size), " ", hidden_size,
           ": expected a multiple of ", keys.num_q_heads, " ", num_q_heads, ", or a head_dim");
    head_dim = hidden_size / num_q_heads;
  }
  if (int64_t{num_q_heads} * head_dim > kMaxExtent)
    fail(ErrorCode::kCorruptFile, json.where("head_dim"), " ", head_dim, " for ", num_q_heads,
         " heads: expected a product of at most ", kMaxExtent);
  return {.num_q_heads = num_q_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
}

GatedMlpSpec read_gated_mlp(const JsonNode& json, const ConfigDefaults& defaults) {
  return {.intermediate_size = read_size(json, defaults.keys.intermediate_size, defaults.intermediate_size),
          .activation = read_activation(json, defaults)};
}

PlainMlpSpec read_plain_mlp(const JsonNode& json, const ConfigDefaults& defaults, int hidden_size) {
  const int missing = defaults.intermediate_size > 0 ? defaults.intermediate_size : 4 * hidden_size;
  return {.intermediate_size = read_size(json, defaults.keys.intermediate_size, missing),
          .activation = read_plain_activation(json, defaults)};
}

MoeMlpSpec read_moe_mlp(const JsonNode& json, const MoeDefaults& defaults) {
  constexpr int kMaxExperts = kernels::kMaxExperts, kMaxPerToken = kernels::kMaxExpertsPerToken;
  // transformers accepts both names.
  const char* key = defaults.num_experts_key != nullptr ? defaults.num_experts_key
                    : json.has("num_experts")           ? "num_experts"
                                                        : "num_local_experts";
  const int num_experts = read_size(json, key, defaults.num_experts, 1 << 16);
  const std::string alias(defaults.top_k_alias);
  const bool by_alias = !alias.empty() && !json.has("num_experts_per_tok") && json.has(alias);
  const std::string top_k_key = by_alias ? alias : "num_experts_per_tok";
  const int top_k = read_size(json, top_k_key.c_str(), defaults.top_k, 1 << 16);
  if (num_experts > kMaxExperts)
    fail(ErrorCode::kUnsupported, json.where(key), " ", num_experts, ": attend supports at most ",
         kMaxExperts, " experts");
  if (top_k > num_experts)
    fail(ErrorCode::kCorruptFile, json.where(top_k_key), " ", top_k, ": expected 1 to ", num_experts,
         ", the number of experts");
  if (top_k > kMaxPerToken)
    fail(ErrorCode::kUnsupported, json.where(top_k_key), " ", top_k, ": attend supports at most ",
         kMaxPerToken, " experts per token");
  if (const std::string name = json.find_string("hidden_act").value_or("silu"); name != "silu")
    fail(ErrorCode::kUnsupported, json.where("hidden_act"), " \"", name,
         "\": attend supports experts with silu");
  const std::string size_key(defaults.intermediate_key);
  return {.num_experts = num_experts,
          .top_k = top_k,
          .intermediate_size = read_size(json, size_key.c_str(), defaults.intermediate_size)};
}

namespace {

void make_layers(const JsonNode& json, const ConfigDefaults& defaults, const MlpSpec& mlp, ModelSpec& spec) {
  const int num_layers = read_size(json, defaults.keys.num_layers, defaults.num_layers, 1 << 16);
  spec.layers.assign(static_cast<size_t>(num_layers),
                     {.mixer = read_attention(json, defaults, spec.hidden_size), .mlp = mlp});
}

void set_rope(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  spec.ropes = {read_rope(json, head_dim, spec.max_position_embeddings, defaults.rope)};
}

}  // namespace

void make_dense_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_layers(json, defaults, read_gated_mlp(json, defaults), spec);
}

void read_dense_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  set_rope(json, defaults, spec);
}

void make_plain_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_layers(json, defaults, read_plain_mlp(json, defaults, spec.hidden_size), spec);
}

void read_plain_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_plain_layers(json, defaults, spec);
  set_rope(json, defaults, spec);
}

void reject_flag(const JsonNode& json, const char* key, std::string_view feature) {
  if (json.boolean_or(key, false)) json.at(key).unsupported("true: attend does not support ", feature);
}

namespace {

// Returns the node with the decoder's fields.
JsonNode decoder_fields(const JsonNode& file, const ModelArchitecture& architecture) {
  const bool nested = architecture.text_config == TextConfig::kNested ||
                      (architecture.text_config == TextConfig::kEither && file.has("text_config"));
  const JsonNode json = nested ? file.at("text_config") : file;
  json.object_size();
  return json;
}

ModelSpec read_spec(const JsonNode& file) {
  const std::string name = read_architecture_name(file);
  const ModelArchitecture& architecture = find_architecture(name, file.where("architectures"));
  const ConfigDefaults& defaults = architecture.defaults;
  const JsonNode json = decoder_fields(file, architecture);
  ModelSpec spec;
  spec.architecture = name;
  const ConfigKeys& keys = defaults.keys;
  spec.hidden_size = read_size(json, keys.hidden_size, defaults.hidden_size);
  spec.vocab_size = read_size(json, "vocab_size", defaults.vocab_size);
  spec.max_position_embeddings =
      read_size(json, keys.max_position_embeddings, defaults.max_position_embeddings);
  spec.norm_eps = static_cast<float>(json.find_positive(keys.norm_eps).value_or(defaults.norm_eps));
  spec.norm_kind = defaults.norm_kind;
  spec.norm_biases = defaults.norm_biases;
  spec.tie_word_embeddings =
      file.find_boolean("tie_word_embeddings")
          .value_or(json.boolean_or("tie_word_embeddings", defaults.tie_word_embeddings));
  spec.dtype = read_dtype(file.has("dtype") || file.has("torch_dtype") ? file : json);
  for (const JsonNode* part : {&json, &file})
    if (const auto quantization = part->find("quantization_config"))
      spec.quantization = read_quantization(*quantization);
  // Queries and keys of one chunk, or of neighboring ones up to chunk_size tokens, keep their distances.
  if (const auto dual_chunk = json.find("dual_chunk_attention_config"))
    spec.dual_chunk_limit = dual_chunk->integer("chunk_size", 2, kMaxExtent);
  architecture.read_layers(json, defaults, spec);
  if (architecture.read_config != nullptr) architecture.read_config(json, spec);
  if (architecture.read_draft != nullptr) architecture.read_draft(json, spec);
  if (name.ends_with(kClassifierSuffix)) spec.classifier = read_classifier(file, architecture.classifier);

  const int limit = std::exchange(spec.dual_chunk_limit, 0);
  if (limit < spec.max_context_len()) spec.dual_chunk_limit = limit;

  for (const JsonNode* part : {&json, &file}) {
    if (const auto bos = part->find("bos_token_id")) spec.bos_token_id = bos->token_id();
    add_eos_tokens(*part, spec.eos_token_ids);
  }
  if (defaults.image_token_id >= 0) spec.image_token_id = read_image_token(file, defaults);
  if (architecture.vision != nullptr)
    if (const auto vision = file.find("vision_config"))
      architecture.vision->read({.file = file, .vision = *vision, .decoder = json}, spec);
  return spec;
}

// Reads the files next to config.json.
void complete_spec(const Checkpoint& checkpoint, ModelSpec& spec) {
  // Old versions of ModelOpt write a separate file instead of config.json.
  if (spec.quantization.storage == WeightStorage::kPlain)
    if (const auto json = checkpoint.find(CheckpointDocument::kQuantization))
      spec.quantization = read_modelopt_quantization(json->at("quantization"));
  if (const auto json = checkpoint.find(CheckpointDocument::kGenerationConfig))
    add_eos_tokens(*json, spec.eos_token_ids);
  if (spec.vision) read_image_processor(checkpoint, spec.vision->processor);
}

}  // namespace

ModelSpec parse_config(std::string_view config_json, const std::string& name) {
  return read_spec(JsonNode(parse_json(config_json, name), name));
}

ModelSpec read_config(const std::filesystem::path& path) { return read_config(*open_checkpoint(path)); }

ModelSpec read_config(const Checkpoint& checkpoint) {
  const JsonNode file = checkpoint.config();
  ModelSpec spec = read_spec(file);
  if (spec.draft)
    fail(ErrorCode::kUnsupported, file.where("architectures"), " \"", spec.architecture,
         "\": a draft head, which predicts tokens only together with its target");
  complete_spec(checkpoint, spec);
  return spec;
}

namespace {

ModelSpec read_draft_spec(const JsonNode& file) {
  ModelSpec spec = read_spec(file);
  if (!spec.draft) {
    const ModelArchitecture& target = find_architecture(spec.architecture, file.where("architectures"));
    if (target.prediction == nullptr)
      fail(ErrorCode::kUnsupported, file.where("architectures"), " \"", spec.architecture,
           "\": neither a draft head nor a model with layers for multi-token prediction");
    const ModelArchitecture& prediction = *target.prediction;
    const int num_layers = spec.num_layers();
    prediction.read_draft(decoder_fields(file, target), spec);
    spec.architecture = prediction.name;
    if (prediction.names.layers == target.names.layers) spec.draft->first_layer = num_layers;
  }
  return spec;
}

}  // namespace

ModelSpec parse_draft_config(std::string_view config_json, const std::string& name) {
  return read_draft_spec(JsonNode(parse_json(config_json, name), name));
}

ModelSpec read_draft_config(const Checkpoint& checkpoint) {
  ModelSpec spec = read_draft_spec(checkpoint.config());
  complete_spec(checkpoint, spec);
  return spec;
}

}  // namespace attend
