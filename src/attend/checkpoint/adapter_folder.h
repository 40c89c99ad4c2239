// AdapterFolder: an adapter (LoRA) as PEFT saves it: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"

namespace attend {

class AdapterFolder {
 public:
  // Opens and maps the files. Throws Error(kNotFound) with the missing file, and Error(kCorruptFile) for a
  // malformed one.
  explicit AdapterFolder(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const JsonNode& config() const { return config_; }
  // The same file with keys in its order.
  const OrderedJson& ordered_config() const { return ordered_config_; }
  const CheckpointTensors& tensors() const { return *tensors_; }
  // SHA-256 of config and tensors, in hexadecimal digits.
  const std::string& digest() const { return digest_; }

 private:
  AdapterFolder(const std::filesystem::path& path, const std::string& config);

  std::filesystem::path path_;
  JsonNode config_;
  OrderedJson ordered_config_;
  std::unique_ptr<const CheckpointTensors> tensors_;
  std::string digest_;
};

}  // namespace attend
