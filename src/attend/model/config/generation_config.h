// GenerationConfig: how a model's makers sample it, from generation_config.json.
#pragma once

#include <filesystem>
#include <optional>

#pragma GCC visibility push(default)
namespace attend {

class Checkpoint;

// What the file does not say is not there. Of other fields attend reads the end-of-sequence tokens alone
// (ModelSpec).
struct GenerationConfig {
  bool do_sample = false;  // as transformers: greedy, unless it says true
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;  // 0: all
};

// Everything is absent where the checkpoint has no generation_config.json. Throws Error(kCorruptFile) with
// the field, its value and what was expected.
GenerationConfig read_generation_config(const Checkpoint& checkpoint);
// The same of open_checkpoint(path).
GenerationConfig read_generation_config(const std::filesystem::path& path);

}  // namespace attend
#pragma GCC visibility pop
