// config.json files with a few fields, for tests of the config readers.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attend/model/config/model_spec.h"
#include "tests/support/test_files.h"

namespace attend::test {

// Fields of a config.json, so that a test can change one. An empty value removes the field.
using Fields = std::map<std::string, std::string>;

inline Fields base_fields(const std::string& architecture) {
  return {{"architectures", "[\"" + architecture + "\"]"},
          {"hidden_size", "64"},
          {"intermediate_size", "96"},
          {"max_position_embeddings", "256"},
          {"num_attention_heads", "4"},
          {"num_hidden_layers", "3"},
          {"num_key_value_heads", "2"},
          {"vocab_size", "128"}};
}

inline std::string json_of(const Fields& fields) {
  std::string json;
  for (const auto& [key, value] : fields) {
    if (value.empty()) continue;
    json += json.empty() ? "{\n" : ",\n";
    json.append("\"").append(key).append("\": ").append(value);
  }
  return json + "\n}\n";
}

inline Fields with(Fields fields, const Fields& changes) {
  for (const auto& [key, value] : changes) fields[key] = value;
  return fields;
}

inline ModelSpec read(const std::string& architecture, const Fields& changes = {}) {
  const TempDir dir;
  dir.write("config.json", json_of(with(base_fields(architecture), changes)));
  return read_config(dir.path());
}
inline ModelSpec llama(const Fields& changes = {}) { return read("LlamaForCausalLM", changes); }

inline const AttentionSpec& attention(const ModelSpec& spec, size_t layer = 0) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}
inline const GatedMlpSpec& mlp(const ModelSpec& spec, size_t layer = 0) {
  return std::get<GatedMlpSpec>(spec.layers.at(layer).mlp);
}
// window_left of each layer.
inline std::vector<int> windows(const ModelSpec& spec) {
  std::vector<int> windows;
  for (size_t i = 0; i < spec.layers.size(); ++i) windows.push_back(attention(spec, i).window_left);
  return windows;
}

inline void expect_rejected(const Fields& changes, ErrorCode code,
                            std::initializer_list<std::string_view> parts,
                            const std::string& architecture = "LlamaForCausalLM") {
  SCOPED_TRACE(json_of(changes));
  expect_error(code, {"config.json: "}, [&] { read(architecture, changes); });
  expect_error(code, parts, [&] { read(architecture, changes); });
}

}  // namespace attend::test
