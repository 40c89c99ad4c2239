#include <algorithm>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"
#include "attend/model/config/model_spec.h"

namespace attend {
namespace {

std::optional<float> read_float(const JsonNode& json, std::string_view key, double lowest, double highest) {
  const auto field = json.find(key);
  if (!field) return std::nullopt;
  const Json& value = field->value();
  if (!value.is_number() || !(value.get<double>() >= lowest && value.get<double>() <= highest)) {
    std::ostringstream expected;
    expected << "a number from " << lowest << " to " << highest;
    field->reject(expected.str());
  }
  return value.get<float>();
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& path) {
  return read_generation_config(*open_checkpoint(path));
}

GenerationConfig read_generation_config(const Checkpoint& checkpoint) {
  const auto found = checkpoint.find(CheckpointDocument::kGenerationConfig);
  if (!found) return {};
  const JsonNode& json = *found;
  GenerationConfig config;
  config.do_sample = json.boolean_or("do_sample", false);
  config.temperature = read_float(json, "temperature", 0.0, 100.0);
  config.top_p = read_float(json, "top_p", 0.0, 1.0);
  config.min_p = read_float(json, "min_p", 0.0, 1.0);
  config.repetition_penalty = read_float(json, "repetition_penalty", 0.01, 2.0);
  // -1 also means all tokens.
  if (const auto top_k = json.find_integer("top_k", -1, INT32_MAX)) config.top_k = std::max(0, *top_k);
  return config;
}

}  // namespace attend
