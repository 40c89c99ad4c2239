#include "attend/model/config/read_classifier.h"

#include <string>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr int kMaxLabels = 1 << 16;

constexpr std::pair<std::string_view, ScoreActivation> kActivations[] = {
    {"Identity", ScoreActivation::kIdentity},
    {"Sigmoid", ScoreActivation::kSigmoid},
    {"Softmax", ScoreActivation::kSoftmax}};

std::vector<std::string> read_labels(const JsonNode& json) {
  std::vector<std::string> labels;
  const auto names = json.find("id2label");
  if (names && names->object_size() > 0) {
    for (size_t i = 0; i < names->object_size(); ++i) labels.push_back(names->at(std::to_string(i)).string());
    return labels;
  }
  // Two labels are the default of transformers.
  const int num_labels = json.find_integer("num_labels", 1, kMaxLabels).value_or(2);
  for (int i = 0; i < num_labels; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

// Precedence as in vLLM: the problem type, then the activation that sentence-transformers wrote.
ScoreActivation read_activation(const JsonNode& json, size_t num_labels) {
  const ScoreActivation classify = num_labels == 1 ? ScoreActivation::kSigmoid : ScoreActivation::kSoftmax;
  if (const auto type = json.find("problem_type")) {
    const std::string& name = type->string();
    if (name == "regression") return ScoreActivation::kIdentity;
    if (name == "multi_label_classification") return ScoreActivation::kSigmoid;
    if (name == "single_label_classification") return classify;
    type->unsupported("\"", name,
                      "\": attend supports regression, single_label_classification, "
                      "multi_label_classification");
  }
  if (const auto node = json.find("sentence_transformers"))
    if (const auto activation = find_activation(*node, "activation_fn")) return *activation;
  return find_activation(json, "sbert_ce_default_activation_function").value_or(classify);
}

}  // namespace

std::string_view to_string(ScoreActivation activation) {
  switch (activation) {
    case ScoreActivation::kIdentity:
      return "identity";
    case ScoreActivation::kSigmoid:
      return "sigmoid";
    case ScoreActivation::kSoftmax:
      return "softmax";
  }
  return "?";
}

std::optional<ScoreActivation> find_activation(const JsonNode& json, std::string_view key) {
  const auto node = json.find(key);
  if (!node) return std::nullopt;
  const std::string& name = node->string();
  for (const auto& [ending, activation] : kActivations)
    if (name.starts_with("torch.nn.") && name.ends_with("." + std::string(ending))) return activation;
  node->unsupported("\"", name, "\": attend supports torch.nn's Identity, Sigmoid and Softmax");
}

ClassifierSpec read_classifier(const JsonNode& json, std::span<const HeadLayer> layers) {
  ClassifierSpec spec;
  if (const auto tokens = json.find("classifier_from_token")) {
    for (size_t i = 0; i < tokens->array_size(); ++i) spec.tokens.push_back(tokens->at(i).string());
    if (spec.tokens.empty()) tokens->reject("a list of tokens");
    spec.token_difference = json.boolean_or("is_original_qwen3_reranker", false);
    if (spec.token_difference && spec.tokens.size() != 2)
      tokens->reject("two tokens, since is_original_qwen3_reranker is true");
    spec.labels = spec.token_difference ? std::vector{spec.tokens.back()} : spec.tokens;
  } else {
    spec.layers.assign(layers.begin(), layers.end());
    spec.labels = read_labels(json);
  }
  spec.activation = read_activation(json, spec.labels.size());
  return spec;
}

}  // namespace attend
