#include "attend/engine/output/embedding_files.h"

#include <string>
#include <string_view>

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/json.h"
#include "attend/model/config/read_classifier.h"

namespace attend {
namespace {

constexpr int kMaxFeatures = 1 << 20;

// Returns the subdirectory that modules.json names.
std::filesystem::path module_directory(const JsonNode& module, const std::filesystem::path& directory) {
  const std::filesystem::path path = module.find_string("path").value_or("");
  for (const auto& part : path)
    if (path.is_absolute() || part == "..") module.reject("path", "a folder of the model's directory");
  return directory / path;
}

Pooling read_pooling(const std::filesystem::path& folder) {
  const JsonNode json = JsonNode::read(folder / "config.json");
  std::optional<Pooling> pooling;
  for (const auto& [key, value] : json.value().items()) {
    if (!key.starts_with("pooling_mode_") || !value.is_boolean() || !value.template get<bool>()) continue;
    const auto known = key == "pooling_mode_mean_tokens" ? std::optional(Pooling::kMean)
                       : key == "pooling_mode_cls_token" ? std::optional(Pooling::kCls)
                       : key == "pooling_mode_lasttoken" ? std::optional(Pooling::kLast)
                                                         : std::nullopt;
    if (!known)
      fail(ErrorCode::kUnsupported, json.where(key),
           " true: attend supports pooling_mode_mean_tokens, pooling_mode_cls_token, pooling_mode_lasttoken");
    if (pooling)
      fail(ErrorCode::kUnsupported, json.where(key),
           " true in addition to another mode: expected one pooling mode");
    pooling = known;
  }
  if (!pooling) json.reject("pooling_mode_mean_tokens", "one pooling_mode that is true");
  return *pooling;
}

EmbeddingDense read_dense(const std::filesystem::path& folder) {
  const JsonNode json = JsonNode::read(folder / "config.json");
  const std::string activation =
      json.find_string("activation_function").value_or("torch.nn.modules.activation.Tanh");
  const bool tanh = activation.ends_with(".Tanh");
  if (!tanh && !activation.ends_with(".Identity"))
    fail(ErrorCode::kUnsupported, json.where("activation_function"), " \"", activation,
         "\": attend supports Tanh and Identity");
  return {.directory = folder,
          .in_features = json.integer("in_features", 1, kMaxFeatures),
          .out_features = json.integer("out_features", 1, kMaxFeatures),
          .bias = json.boolean_or("bias", true),
          .tanh = tanh};
}

LogitScore read_logit_score(const std::filesystem::path& folder) {
  const JsonNode json = JsonNode::read(folder / "config.json");
  LogitScore score{.true_token = json.at("true_token_id").token_id(), .false_token = {}};
  if (const auto token = json.find("false_token_id")) score.false_token = token->token_id();
  return score;
}

}  // namespace

std::optional<int> read_model_max_length(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!file_exists(path)) return std::nullopt;
  const auto length = JsonNode::read(path).find("model_max_length");
  if (!length || !length->value().is_number_unsigned() || length->value().get<uint64_t>() >= (1u << 30))
    return std::nullopt;
  return length->integer(1, 1 << 30);
}

std::optional<EmbeddingFiles> read_embedding_files(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "modules.json";
  if (!file_exists(path)) return std::nullopt;
  const JsonNode modules = JsonNode::read(path);
  EmbeddingFiles files;
  for (size_t i = 0; i < modules.array_size(); ++i) {
    const JsonNode module = modules.at(i);
    const std::string type = module.at("type").string();
    const std::string_view kind = std::string_view(type).substr(type.rfind('.') + 1);
    const std::filesystem::path folder = module_directory(module, directory);
    if (kind == "Transformer") {
      if (folder.lexically_normal() != (directory / "").lexically_normal())
        module.reject("path", "\"\": the model in the directory itself");
    } else if (kind == "Pooling") {
      files.pooling = read_pooling(folder);
    } else if (kind == "Dense") {
      if (!files.pooling || files.normalize)
        module.reject("type", "Dense after Pooling and before Normalize");
      files.dense.push_back(read_dense(folder));
    } else if (kind == "LogitScore") {
      files.logit_score = read_logit_score(folder);
    } else if (kind == "Normalize") {
      files.normalize = true;
    } else {
      module.at("type").unsupported("\"", type,
                                    "\": attend supports Transformer, Pooling, Dense, "
                                    "Normalize, LogitScore");
    }
  }
  if (const auto bert = directory / "sentence_bert_config.json"; file_exists(bert)) {
    const JsonNode json = JsonNode::read(bert);
    files.max_tokens = json.find_integer("max_seq_length", 1, 1 << 30);
    if (json.boolean_or("do_lower_case", false))
      json.at("do_lower_case").unsupported("true: lower-casing is done by the tokenizer");
  }
  // This limit applies if sentence-transformers has none.
  if (!files.max_tokens) files.max_tokens = read_model_max_length(directory);
  if (const auto settings = directory / "config_sentence_transformers.json"; file_exists(settings))
    files.activation = find_activation(JsonNode::read(settings), "activation_fn");
  return files;
}

}  // namespace attend
