// Models that are nothing but a shape: for random weights.
#pragma once

#include <filesystem>
#include <string>

namespace attend::bench {

// A model directory in the system's temporary files that holds a config.json alone: for dummy weights.
// Removed with the object.
class ConfigDirectory {
 public:
  explicit ConfigDirectory(const std::string& config_json);
  ~ConfigDirectory();
  ConfigDirectory(const ConfigDirectory&) = delete;
  ConfigDirectory& operator=(const ConfigDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// config.json of a well-known shape: "llama-3.1-8b", "llama-3.2-1b", "qwen3-0.6b". Throws
// Error(kInvalidArgument) with the list of shapes.
std::string shape_config(const std::string& shape);

// The same config with another number of layers.
std::string with_num_layers(const std::string& config_json, int num_layers);

}  // namespace attend::bench
