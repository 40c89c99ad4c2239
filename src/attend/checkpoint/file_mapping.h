// A file mapped into memory for reading. It stays open, so that what becomes of it can be asked.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/mapped_range.h"

namespace attend {

// A file that disappears or is replaced does no harm: the mapping is of the one that was opened. One that is
// written to changes under the reader, and one that is cut short raises SIGBUS (mapped_range.h).
class FileMapping {
 public:
  // Throws Error(kNotFound) as InputFile does, and Error(kOutOfMemory) when there is no address space for it.
  explicit FileMapping(const std::filesystem::path& path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;

  const std::byte* bytes() const { return static_cast<const std::byte*>(memory_); }
  size_t num_bytes() const { return static_cast<size_t>(status_.st_size); }

  // A copy of these bytes, shorter when the file has been cut short.
  std::string read(size_t begin, size_t num_bytes) const { return file_.read(begin, num_bytes); }
  // Reads the pages of these bytes into memory. False: the file has them no longer.
  bool fetch(size_t begin, size_t num_bytes) const;
  // Whether nobody has written to the file since it was opened.
  bool unchanged() const;

 private:
  InputFile file_;
  struct stat status_;  // when it was opened
  void* memory_ = nullptr;
  std::optional<MappedRange> range_;
};

}  // namespace attend
