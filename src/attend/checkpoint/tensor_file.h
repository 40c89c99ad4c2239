// TensorFile: tensors of a file that is mapped into memory. Readers of file formats parse its header.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/tensor/tensor.h"

namespace attend {

class FileMapping;

// Read-only: writing to a tensor of a mapped file ends the process. Thread-safe after construction.
class TensorFile {
 public:
  // `entries`: byte ranges that are inside the file, relative to `data_begin`.
  TensorFile(std::filesystem::path path, std::shared_ptr<FileMapping> mapping, size_t data_begin,
             std::vector<TensorEntry> entries);
  TensorFile(TensorFile&&) = default;
  TensorFile(const TensorFile&) = delete;

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
  size_t data_begin_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;
};

}  // namespace attend
