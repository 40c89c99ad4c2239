// A file mapped into memory for reading. It stays open, so that later modifications can be detected.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/mapped_range.h"

namespace attend {

// Deleting or replacing the file is harmless, because the mapping refers to the opened file. A write to the
// file changes the mapped bytes, and reads after a truncation raise SIGBUS (mapped_range.h).
class FileMapping {
 public:
  // Throws the errors of InputFile, and Error(kOutOfMemory) without enough address space.
  explicit FileMapping(const std::filesystem::path& path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;

  const std::byte* bytes() const { return static_cast<const std::byte*>(memory_); }
  size_t num_bytes() const { return static_cast<size_t>(status_.st_size); }

  // Returns a copy of these bytes, shorter if the file was truncated.
  std::string read(size_t begin, size_t num_bytes) const { return file_.read(begin, num_bytes); }
  // Reads the pages of these bytes into memory. Returns false if the file was truncated before their end.
  bool fetch(size_t begin, size_t num_bytes) const;
  // Returns true if the file was not modified since it was opened.
  bool unchanged() const;

 private:
  InputFile file_;
  struct stat status_;  // when it was opened
  void* memory_ = nullptr;
  std::optional<MappedRange> range_;
};

}  // namespace attend
