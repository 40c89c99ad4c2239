// The weights of a model directory: one safetensors file, or shards that an index names.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/checkpoint/hf/safetensors.h"

#pragma GCC visibility push(default)
namespace attend {

// How far loading is: bytes done and in all.
using LoadProgress = std::function<void(size_t done, size_t total)>;

// Thread-safe after construction.
class ModelWeights {
 public:
  // Opens model.safetensors or, without it, every shard of model.safetensors.index.json. Throws
  // Error(kNotFound) when neither is there or a shard is missing, Error(kCorruptFile) for a malformed file,
  // a shard name that leaves the directory, or a tensor that the index places in a shard without it.
  explicit ModelWeights(const std::filesystem::path& directory);
  // Whether one of the two files is there.
  static bool are_in(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  bool contains(std::string_view name) const { return locate(name) != nullptr; }
  // Of all tensors, in no order.
  std::vector<std::string> names() const;
  // What the header says of a tensor. Throws Error(kNotFound) naming the directory.
  const SafetensorsEntry& entry(std::string_view name) const;
  // As SafetensorsFile::tensor. Throws Error(kNotFound) naming the directory.
  Tensor tensor(std::string_view name) const;
  // As SafetensorsFile::read. Throws Error(kNotFound) naming the directory.
  std::string read(std::string_view name) const;
  // Names the file that holds the tensor, for messages.
  std::string where(std::string_view name) const;
  // As SafetensorsFile::fetch.
  void fetch(std::string_view name, const std::function<void(size_t bytes)>& fetched) const;
  // As SafetensorsFile::read_ahead, of all files.
  void read_ahead(const std::atomic<bool>& stop) const;
  // Throws Error(kCorruptFile) naming a file that was written to since it was opened.
  void check_unchanged() const;

 private:
  const SafetensorsFile* locate(std::string_view name) const;
  const SafetensorsFile& file_of(std::string_view name) const;
  void open_shards(const std::filesystem::path& index_path);

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, size_t> file_of_tensor_;  // index into files_
};

}  // namespace attend
#pragma GCC visibility pop
