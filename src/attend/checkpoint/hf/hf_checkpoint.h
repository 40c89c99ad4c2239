// Model directory in Hugging Face's format: JSON files and safetensors.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/checkpoint/json.h"
#include "attend/checkpoint/tensor_files.h"

namespace attend {

// Tensors of a model directory: one safetensors file, or shards listed in an index.
class HfTensors : public TensorFiles {
 public:
  // Opens model.safetensors or, if it is missing, every shard of model.safetensors.index.json. Throws
  // Error(kNotFound) if both are missing or a shard is missing, Error(kCorruptFile) for a malformed file, a
  // shard name outside the directory, or a tensor that is not in the shard that the index names.
  explicit HfTensors(const std::filesystem::path& directory);
  // Returns true if one of the two files exists.
  static bool are_in(const std::filesystem::path& directory);

 private:
  void open_shards(const std::filesystem::path& index_path);
};

class HfCheckpoint : public Checkpoint {
 public:
  using Checkpoint::Checkpoint;

  JsonNode config() const override;
  std::optional<JsonNode> find(CheckpointDocument document) const override;
  std::optional<CheckpointText> chat_template() const override;
  bool has_tensors() const override;
  std::shared_ptr<const CheckpointTensors> open_tensors() const override;
};

}  // namespace attend
