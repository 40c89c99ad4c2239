// SafetensorsFile: a safetensors file that is mapped into memory.
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
  // Maps the file and checks its header. Throws Error(kNotFound) if it cannot be read, Error(kCorruptFile)
  // like parse_safetensors_header, or if it is shorter than its header requires.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Entries in the order of their data.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  // Returns null for an unknown name.
  const TensorEntry* find(std::string_view name) const;

  // Returns a view of the mapping, which it keeps alive, or a copy if the data is not aligned to its dtype.
  // Throws Error(kNotFound), or Error(kUnsupported) for an unsupported dtype or rank.
  Tensor tensor(std::string_view name) const;
  // Returns a copy of a tensor's bytes, read without touching the mapping (its pages may be huge): for small
  // tensors between large ones. Shorter if the file has been truncated.
  std::string read(const TensorEntry& entry) const;

  // Throws Error(kCorruptFile) if the file was modified since it was opened, detected by its size and
  // modification time.
  void check_unchanged() const;
  // Reads the pages of bytes [begin, end) of a tensor into memory, so that the first step does not wait for
  // the disk. Throws Error(kCorruptFile) if the file was modified or truncated since it was opened. Deleting
  // or replacing the file is harmless, since the mapping refers to the opened one. Truncating that file later
  // ends the process (mapped_range.h).
  void fetch(const TensorEntry& entry, uint64_t begin, uint64_t end,
             const std::function<void(size_t bytes)>& fetched) const;
  // Fetches all tensors in the order of their data, until `stop` is set. Does not throw: it stops at a
  // truncation, which fetch() reports.
  void prefetch_all(const std::atomic<bool>& stop) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<FileMapping> mapping_;
  size_t data_begin_ = 0;  // after the header
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;
};

}  // namespace attend
