// Reads the classification head of a config.json.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "attend/checkpoint/json.h"
#include "attend/model/config/classifier_spec.h"

namespace attend {

// Suffix of the names of architectures with a classification head.
inline constexpr std::string_view kClassifierSuffix = "ForSequenceClassification";

// Reads labels, activation and the tokens of a reranker without a head of its own. `layers`: head of the
// architecture.
ClassifierSpec read_classifier(const JsonNode& json, std::span<const HeadLayer> layers);

// Reads the name of an activation as sentence-transformers writes it ("torch.nn.modules.linear.Identity")
// from a field; returns no value if the field is absent. Throws Error(kUnsupported) for another activation.
std::optional<ScoreActivation> find_activation(const JsonNode& json, std::string_view key);

}  // namespace attend
