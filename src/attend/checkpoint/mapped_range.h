// What becomes of a process when a file that it has mapped is cut short: reading a page that the file no
// longer has raises SIGBUS, which ends a process without a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace attend {

// Remembers, as long as it lives, which file is mapped at an address. For any thread.
class MappedRange {
 public:
  MappedRange(const void* begin, size_t num_bytes, const std::filesystem::path& path);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;

 private:
  std::string path_;
  size_t entry_;
};

// From now on a SIGBUS inside of a MappedRange names its file on stderr and ends the process with
// `exit_code`; any other SIGBUS does what it always does. For programs: a library leaves signals alone.
void exit_on_truncated_mapping(int exit_code);

}  // namespace attend
