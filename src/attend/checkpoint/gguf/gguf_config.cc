#include "attend/checkpoint/gguf/gguf_config.h"

#include <algorithm>
#include <map>
#include <string>

#include "attend/base/error.h"
#include "attend/checkpoint/gguf/gguf_architectures.h"

namespace attend {
namespace {

const GgufTensorInfo* find_tensor(std::span<const GgufFile> files, std::string_view name) {
  for (const GgufFile& file : files)
    if (const GgufTensorInfo* tensor = file.find_tensor(name)) return tensor;
  return nullptr;
}

// Returns the type with the most elements among matrices.
const GgufTensorType* main_type(std::span<const GgufFile> files) {
  std::map<const GgufTensorType*, int64_t> elements;
  for (const GgufFile& file : files)
    for (const GgufTensorInfo& tensor : file.header().tensors) {
      if (tensor.shape.size() < 2) continue;
      int64_t& count = elements[tensor.type];
      for (int64_t extents = 1; const int64_t extent : tensor.shape)
        if (extents *= extent; &extent == &tensor.shape.back()) count += extents;
    }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  return most == elements.end() ? nullptr : most->first;
}

std::string_view dtype_name(std::span<const GgufFile> files, const GgufArchitecture& architecture) {
  const GgufTensorType* const type = main_type(files);
  if (type != nullptr && type->dtype == DType::kF32) return "float32";
  const bool is_bf16 = type != nullptr && type->dtype == DType::kBF16;
  return is_bf16 || architecture.prefers_bf16 ? "bfloat16" : "float16";
}

bool has_blocks(std::span<const GgufFile> files) {
  return std::ranges::any_of(files, [](const GgufFile& file) {
    return std::ranges::any_of(file.header().tensors, [](const GgufTensorInfo& tensor) {
      return tensor.type->block_format.has_value();
    });
  });
}

std::optional<Json> read_factors(std::span<const GgufFile> files, std::string_view name) {
  for (const GgufFile& file : files)
    if (const GgufTensorInfo* tensor = file.find_tensor(name)) return Json(file.read_numbers(*tensor));
  return std::nullopt;
}

template <class Value>
[[noreturn]] void reject_value(const GgufModelMetadata& metadata, std::string_view name, Value value,
                               const std::string& supported) {
  fail(ErrorCode::kUnsupported, metadata.file().name(), ": metadata \"", metadata.key(name), "\" ", value,
       ": attend supports ", supported);
}

// Scaling of rotary frequencies. Factors per frequency, as Llama 3 has them, are longrope with the same
// factors for short and long contexts.
Json rope_scaling(const GgufModelMetadata& metadata, std::span<const GgufFile> files, int64_t context) {
  Json scaling = Json::object();
  const int64_t original = metadata.find_integer("rope.scaling.original_context_length").value_or(context);
  const auto attention = metadata.find_number("rope.scaling.attn_factor");
  const auto long_factors = read_factors(files, "rope_factors_long.weight");
  const auto short_factors = read_factors(files, "rope_factors_short.weight");
  if (long_factors && short_factors) {
    scaling = {{"rope_type", "longrope"}, {"long_factor", *long_factors}, {"short_factor", *short_factors}};
    if (attention) scaling["attention_factor"] = *attention;
    scaling["original_max_position_embeddings"] = original;
    return scaling;
  }
  if (const auto factors = read_factors(files, "rope_freqs.weight"))
    return {{"rope_type", "longrope"},
            {"long_factor", *factors},
            {"short_factor", *factors},
            {"attention_factor", 1.0},
            {"original_max_position_embeddings", context}};
  const std::string key = metadata.key("rope.scaling.type");
  auto factor = metadata.find_number("rope.scaling.factor");
  if (!factor) factor = metadata.find_number("rope.scale_linear");
  // Older files have the factor of linear scaling without a type; 0 and 1 are llama.cpp's marks of none.
  const bool is_scaled = factor && *factor != 0.0 && *factor != 1.0;
  const std::string_view type = metadata.file().find_text(key).value_or(is_scaled ? "linear" : "none");
  if (type == "none") return scaling;
  if (!factor) metadata.file().reject(metadata.key("rope.scaling.factor"), "a number");
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", *factor}};
  if (type != "yarn")
    fail(ErrorCode::kUnsupported, metadata.file().name(), ": metadata \"", key, "\" ",
         excerpt(std::string(type)), ": attend supports none, linear, yarn, and longrope with its factors");
  scaling = {{"rope_type", "yarn"}, {"factor", *factor}, {"original_max_position_embeddings", original}};
  for (const char* name :
       {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"})
    if (const auto given = metadata.find_number(name); given && *given != 1.0)
      reject_value(metadata, name, *given, "1 for yarn");
  if (const auto beta = metadata.find_number("rope.scaling.yarn_beta_fast")) scaling["beta_fast"] = *beta;
  if (const auto beta = metadata.find_number("rope.scaling.yarn_beta_slow")) scaling["beta_slow"] = *beta;
  if (const auto multiplier = metadata.find_number("rope.scaling.yarn_log_multiplier"))
    // ggml's multiplier is 0.1 times DeepSeek's mscale.
    scaling["mscale"] = scaling["mscale_all_dim"] = 10.0 * *multiplier;
  return scaling;
}

void copy_integer(const GgufModelMetadata& metadata, std::string_view name, const char* key, Json& config) {
  if (const auto value = metadata.find_integer(name)) config[key] = *value;
}

// Integers that may be an array with one per layer, where attend supports equal ones only.
void copy_equal(const GgufModelMetadata& metadata, std::string_view name, const char* key, Json& config) {
  const GgufValue* const value = metadata.file().find(metadata.key(name));
  if (value == nullptr) return;
  if (!std::holds_alternative<GgufArray>(*value)) return copy_integer(metadata, name, key, config);
  std::vector<int64_t> values = metadata.file().find_integers(metadata.key(name)).value();
  std::erase(values, 0);  // layers of other kinds
  if (values.empty() || std::ranges::any_of(values, [&](int64_t each) { return each != values[0]; }))
    fail(ErrorCode::kUnsupported, metadata.file().name(), ": metadata \"", metadata.key(name),
         "\": attend supports one value for all layers");
  config[key] = values[0];
}

// Rejects partial rotary embeddings of architectures that rotate all dimensions of a head.
void check_rotary_dim(const GgufModelMetadata& metadata, const Json& config) {
  const auto dim = metadata.find_integer("rope.dimension_count");
  if (!dim || config.contains("partial_rotary_factor") || !config.contains("head_dim")) return;
  const int64_t head_dim = config["head_dim"];
  if (*dim != head_dim)
    reject_value(metadata, "rope.dimension_count", *dim,
                 "the head dim, " + std::to_string(head_dim) + ", in this architecture");
}

// Rejects embedding models that architectures of language models cannot describe.
void check_embedding_fields(const GgufModelMetadata& metadata) {
  constexpr int64_t kNone = 0, kLast = 3;
  if (!metadata.find_boolean("attention.causal").value_or(true))
    reject_value(metadata, "attention.causal", "false", "causal attention");
  if (const auto pooling = metadata.find_integer("pooling_type").value_or(kNone);
      pooling != kNone && pooling != kLast)
    reject_value(metadata, "pooling_type", pooling, "0 (none) and 3 (last token)");
}

}  // namespace

std::vector<int64_t> gguf_end_tokens(const GgufFile& file) {
  // Ends of turns that older files do not list.
  constexpr std::string_view kEnds[] = {"<|eot_id|>",      "<|im_end|>", "<|end|>",         "<end_of_turn>",
                                        "<|end_of_turn|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>"};
  // Ends of turns of gpt-oss, whose <|end|> is the end of a message within a turn.
  constexpr std::string_view kReturn = "<|return|>", kCall = "<|call|>", kEnd = "<|end|>";
  constexpr int64_t kControl = 3;
  std::vector<int64_t> ends;
  const auto add = [&](int64_t id) {
    if (id < 0 || id > INT32_MAX) return;  // llama.cpp's marks of absent tokens
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  };
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = file.find_integer(key)) add(*id);
  const auto* const tokens = file.find_texts("tokenizer.ggml.tokens");
  const auto types = file.find_integers("tokenizer.ggml.token_type");
  if (tokens == nullptr || !types || types->size() != tokens->size()) return ends;
  const bool returns = std::ranges::find(*tokens, kReturn) != tokens->end();
  for (size_t id = 0; id < tokens->size(); ++id) {
    const std::string_view token = (*tokens)[id];
    const bool is_known = std::ranges::find(kEnds, token) != std::end(kEnds);
    const bool ends_turn =
        returns ? token == kReturn || token == kCall || (is_known && token != kEnd) : is_known;
    if ((*types)[id] == kControl && ends_turn) add(static_cast<int64_t>(id));
  }
  return ends;
}

Json gguf_config(std::span<const GgufFile> files) {
  const GgufFile& file = files[0];
  const GgufArchitecture& architecture = find_gguf_architecture(file);
  const GgufModelMetadata metadata(file);
  check_embedding_fields(metadata);
  Json config = {{"architectures", {architecture.hf}}};
  constexpr int64_t kMaxLayers = 1 << 16;
  const int64_t num_layers = config["num_hidden_layers"] = metadata.integer("block_count");
  if (num_layers < 1 || num_layers > kMaxLayers)
    file.reject(metadata.key("block_count"), "1 to " + std::to_string(kMaxLayers));
  const int64_t context = config["max_position_embeddings"] = metadata.integer("context_length");
  const int64_t hidden = config["hidden_size"] = metadata.integer("embedding_length");
  copy_equal(metadata, "feed_forward_length", "intermediate_size", config);
  copy_equal(metadata, "attention.head_count", "num_attention_heads", config);
  copy_equal(metadata, "attention.head_count_kv", "num_key_value_heads", config);
  if (!config.contains("num_attention_heads"))
    file.reject(metadata.key("attention.head_count"), "an integer");
  const int64_t heads = config["num_attention_heads"];
  if (heads == 0) file.reject(metadata.key("attention.head_count"), "a positive integer");
  config["head_dim"] = metadata.find_integer("attention.key_length").value_or(hidden / heads);
  copy_integer(metadata, "expert_count", "num_local_experts", config);
  copy_integer(metadata, "expert_used_count", "num_experts_per_tok", config);
  copy_integer(metadata, "expert_feed_forward_length", "moe_intermediate_size", config);
  if (const auto window = metadata.find_integer("attention.sliding_window"); window && *window > 0)
    config["sliding_window"] = *window;
  const auto epsilon = metadata.find_number("attention.layer_norm_rms_epsilon");
  if (!epsilon) file.reject(metadata.key("attention.layer_norm_rms_epsilon"), "a number");
  config["rms_norm_eps"] = *epsilon;
  config["rope_theta"] = metadata.find_number("rope.freq_base").value_or(10000.0);
  if (Json scaling = rope_scaling(metadata, files, context); !scaling.empty())
    config["rope_scaling"] = std::move(scaling);
  if (architecture.interleaves_rope) config["rope_interleave"] = true;

  const GgufTensorInfo* const embedding = find_tensor(files, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    fail(ErrorCode::kCorruptFile, file.name(), ": tensor \"token_embd.weight\" ",
         embedding == nullptr ? "is missing" : "is not a matrix", ": expected the embeddings");
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = find_tensor(files, "output.weight") == nullptr;
  config["dtype"] = dtype_name(files, architecture);
  if (has_blocks(files)) config["quantization_config"] = {{"quant_method", "gguf"}};
  if (const auto bos = file.find_integer("tokenizer.ggml.bos_token_id");
      bos && *bos >= 0 && *bos <= INT32_MAX)
    config["bos_token_id"] = *bos;
  if (const auto ends = gguf_end_tokens(file); !ends.empty()) config["eos_token_id"] = ends;
  if (architecture.add_fields != nullptr) architecture.add_fields(metadata, config);
  check_rotary_dim(metadata, config);
  return config;
}

}  // namespace attend
