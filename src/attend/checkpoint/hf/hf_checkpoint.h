// Model directory in Hugging Face's format: JSON files and safetensors.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/checkpoint/json.h"

namespace attend {

// Tensors of a model directory: one safetensors file, or shards listed in an index.
class HfTensors : public CheckpointTensors {
 public:
  // Opens model.safetensors or, if it is missing, every shard of model.safetensors.index.json. Throws
  // Error(kNotFound) if both are missing or a shard is missing, Error(kCorruptFile) for a malformed file, a
  // shard name outside the directory, or a tensor that is not in the shard that the index names.
  explicit HfTensors(const std::filesystem::path& directory);
  // Returns true if one of the two files exists.
  static bool are_in(const std::filesystem::path& directory);

  bool contains(std::string_view name) const override { return locate(name) != nullptr; }
  std::vector<std::string> names() const override;
  const TensorEntry& entry(std::string_view name) const override;
  Tensor tensor(std::string_view name) const override;
  std::string read(std::string_view name) const override;
  std::string where(std::string_view name) const override;
  void fetch(std::string_view name, uint64_t begin, uint64_t end,
             const std::function<void(size_t bytes)>& fetched) const override;
  void prefetch_all(const std::atomic<bool>& stop) const override;
  void check_unchanged() const override;

 private:
  const SafetensorsFile* locate(std::string_view name) const;
  const SafetensorsFile& file_with_tensor(std::string_view name) const;
  void open_shards(const std::filesystem::path& index_path);

  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, size_t> tensor_file_;  // index into files_
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
