// Checkpoint in GGUF files (llama.cpp): one file, or the parts of a split one.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/gguf/gguf_file.h"
#include "attend/checkpoint/json.h"
#include "attend/checkpoint/tensor_files.h"

namespace attend {

// Tensors by their Hugging Face names. Each expert is a range of a tensor with all experts of a layer.
class GgufTensors : public TensorFiles {
 public:
  // Throws Error(kUnsupported) for a tensor in a type that attend does not support.
  GgufTensors(const std::filesystem::path& path, std::vector<GgufFile> files);

  Tensor tensor(std::string_view name) const override;

 private:
  std::unordered_set<std::string> norms_plus_one_;  // stored as 1 + weight
};

class GgufCheckpoint : public Checkpoint {
 public:
  using Checkpoint::Checkpoint;

  JsonNode config() const override;
  std::optional<JsonNode> find(CheckpointDocument kind) const override;
  std::optional<CheckpointText> chat_template() const override { return std::nullopt; }
  bool has_tensors() const override;
  std::shared_ptr<const CheckpointTensors> open_tensors() const override;
};

}  // namespace attend
