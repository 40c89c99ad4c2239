#include <algorithm>
#include <cmath>

#include "attend/base/error.h"
#include "attend/model/architecture.h"
#include "attend/model/json.h"
#include "attend/model/model_spec.h"
#include "attend/model/read_rope.h"

namespace attend {
namespace {

// Above what any model has, below where products of two leave int64.
constexpr int kMaxExtent = 1 << 30;

const ModelArchitecture& read_architecture(const JsonNode& json) {
  const auto names = json.find("architectures");
  if (!names || !names->value().is_array() || names->value().size() != 1 || !names->value()[0].is_string())
    json.refuse("architectures", "an array of one name");
  return find_architecture(names->at(size_t{0}).string(), names->where());
}

// The fields of every layer: those of architectures that have but one kind.
LayerSpec read_layer(const JsonNode& json, const ModelArchitecture& architecture, int hidden_size) {
  const int num_q_heads = json.integer("num_attention_heads", 1, 1 << 16);
  int num_kv_heads = num_q_heads;
  if (architecture.default_num_kv_heads != 0 && !json.mentions("num_key_value_heads"))
    num_kv_heads = architecture.default_num_kv_heads;
  num_kv_heads = json.find_integer("num_key_value_heads", 1, 1 << 16).value_or(num_kv_heads);
  if (num_q_heads % num_kv_heads != 0)
    fail(ErrorCode::kCorruptFile, json.where("num_key_value_heads"), " ", num_kv_heads,
         ": expected a divisor of num_attention_heads ", num_q_heads);

  int head_dim = json.find_integer("head_dim", 1, 1 << 16).value_or(architecture.default_head_dim);
  if (head_dim == 0) {
    if (hidden_size % num_q_heads != 0)
      fail(ErrorCode::kCorruptFile, json.where("hidden_size"), " ", hidden_size,
           ": expected a multiple of num_attention_heads ", num_q_heads, ", or a head_dim");
    head_dim = hidden_size / num_q_heads;
  }
  if (int64_t{num_q_heads} * head_dim > kMaxExtent)
    fail(ErrorCode::kCorruptFile, json.where("head_dim"), " ", head_dim, " for ", num_q_heads,
         " heads: expected a product of at most ", kMaxExtent);
  return {.mixer = AttentionSpec{.num_q_heads = num_q_heads,
                                 .num_kv_heads = num_kv_heads,
                                 .head_dim = head_dim,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))},
          .mlp = GatedMlpSpec{.intermediate_size = json.integer("intermediate_size", 1, kMaxExtent)}};
}

// transformers wrote torch_dtype and now writes dtype.
DType read_dtype(const JsonNode& json) {
  const char* key = json.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = json.find_string(key).value_or("float32");
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    if (name == to_string(dtype)) return dtype;
  fail(ErrorCode::kUnsupported, json.where(key), " \"", name, "\": attend has float32, float16, bfloat16");
}

// Whatever would change the model's results and is not read elsewhere.
void refuse_what_is_missing(const JsonNode& json) {
  if (const auto quantization = json.find("quantization_config"))
    fail(ErrorCode::kUnsupported, json.where("quantization_config"), " \"",
         quantization->find_string("quant_method").value_or("?"),
         "\": attend has weights in float32, float16, bfloat16");
  const std::string activation = json.find_string("hidden_act").value_or("silu");
  if (activation != "silu")
    fail(ErrorCode::kUnsupported, json.where("hidden_act"), " \"", activation, "\": attend has silu");
}

// One token id or an array of them.
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

ModelSpec read_config(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error))
    fail(ErrorCode::kNotFound, directory.string(),
         ": expected a model directory, with a config.json, on this machine: nothing is downloaded");
  const JsonNode json = JsonNode::read(directory / "config.json");
  const ModelArchitecture& architecture = read_architecture(json);
  refuse_what_is_missing(json);
  ModelSpec spec;
  spec.architecture = architecture.name;
  const int num_layers = json.integer("num_hidden_layers", 1, 1 << 16);
  spec.hidden_size = json.integer("hidden_size", 1, kMaxExtent);
  const LayerSpec layer = read_layer(json, architecture, spec.hidden_size);
  spec.vocab_size = json.integer("vocab_size", 1, kMaxExtent);
  spec.max_position_embeddings = json.integer("max_position_embeddings", 1, kMaxExtent);
  spec.norm_eps = static_cast<float>(json.find_positive("rms_norm_eps").value_or(1e-6));
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  spec.tie_word_embeddings = json.find_boolean("tie_word_embeddings").value_or(false);
  spec.dtype = read_dtype(json);
  architecture.read_config(json, spec);
  const int head_dim = std::get<AttentionSpec>(layer.mixer).head_dim;
  spec.ropes = {read_rope(json, head_dim, spec.max_position_embeddings)};

  if (const auto bos = json.find("bos_token_id")) spec.bos_token_id = bos->token_id();
  add_eos_tokens(json, spec.eos_token_ids);
  if (const auto path = directory / "generation_config.json"; std::filesystem::exists(path))
    add_eos_tokens(JsonNode::read(path), spec.eos_token_ids);
  return spec;
}

}  // namespace attend
