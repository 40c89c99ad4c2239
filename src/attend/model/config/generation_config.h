// GenerationConfig: how a model's makers sample it, from generation_config.json.
#pragma once

#include <filesystem>
#include <optional>

#pragma GCC visibility push(default)
namespace attend {

// What the file does not say is not there. Of other fields attend reads the end-of-sequence tokens alone
// (ModelSpec).
struct GenerationConfig {
  bool do_sample = false;  // as transformers: greedy, unless it says true
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;  // 0: all
};

// Of a model directory; without a generation_config.json nothing is there. Throws Error(kCorruptFile) naming
// the field, its value and what was expected.
GenerationConfig read_generation_config(const std::filesystem::path& directory);

}  // namespace attend
#pragma GCC visibility pop
