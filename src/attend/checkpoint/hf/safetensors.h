// A safetensors file, mapped into memory.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/checkpoint/hf/safetensors_header.h"
#include "attend/tensor/tensor.h"

namespace attend {

class FileMapping;

// Read-only: writing to a tensor of a mapped file ends the process. Thread-safe after construction.
class SafetensorsFile {
 public:
  // Maps the file and checks its header. Throws Error(kNotFound) when it cannot be read, Error(kCorruptFile)
  // as parse_safetensors_header does, or when it is shorter than its header says.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // In the order of their data.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  // Null: no such tensor.
  const TensorEntry* find(std::string_view name) const;

  // A view of the mapping, which it keeps alive; a copy when the data is not aligned to its dtype. Throws
  // Error(kNotFound), or Error(kUnsupported) for a dtype or rank that attend does not have.
  Tensor tensor(std::string_view name) const;
  // A copy of a tensor's bytes that brings no page of the mapping in, which may be a huge one: of a small
  // tensor among large ones. Shorter when the file has been cut short.
  std::string read(const TensorEntry& entry) const;

  // Throws Error(kCorruptFile) when the file was written to since it was opened, as its size and its time of
  // modification tell.
  void check_unchanged() const;
  // Reads a tensor's pages into memory, so that the first step does not wait for the disk. Throws
  // Error(kCorruptFile) when the file was written to or cut short since it was opened. One that disappears or
  // is replaced does no harm: the mapping is of the file that was opened. Whoever cuts that one short later
  // ends the process (mapped_range.h).
  void fetch(const TensorEntry& entry, const std::function<void(size_t bytes)>& fetched) const;
  // The same for all of them, in the order of their data, until `stop` is set. Throws nothing: where the file
  // was cut short it ends, and fetch() says so.
  void prefetch_all(const std::atomic<bool>& stop) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<FileMapping> mapping_;
  size_t data_begin_ = 0;  // behind the header
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;
};

}  // namespace attend
