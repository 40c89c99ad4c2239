// Diagnosis of truncated mapped files: reading a page past the new end of a mapped file raises SIGBUS, which
// ends the process without a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace attend {

// Registers the file that is mapped at an address, for its lifetime. Thread-safe.
class MappedRange {
 public:
  MappedRange(const void* begin, size_t num_bytes, const std::filesystem::path& path);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;

 private:
  std::string path_;
  size_t entry_;
};

// Installs a handler: a SIGBUS in a MappedRange prints its file to stderr and ends the process with
// `exit_code`; any other SIGBUS has its default effect. For programs only, since a library should not install
// signal handlers.
void exit_on_truncated_mapping(int exit_code);

}  // namespace attend
