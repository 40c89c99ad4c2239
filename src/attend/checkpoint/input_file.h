// Untrusted files, opened for reading. Only regular files are read, since a pipe or a device may never end.
// Errors name the cause: a dangling link, a loop of links, a directory, missing permission.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace attend {

class InputFile {
 public:
  // Throws Error(kNotFound) if it cannot be opened or is not a regular file.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  // Current size; calls fstat each time.
  struct stat status() const;
  // Returns a copy of these bytes, shorter at the end of the file. Throws Error(kNotFound).
  std::string read(size_t begin, size_t num_bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// Reads a whole file. Throws the errors of InputFile, Error(kUnsupported) above `max_bytes`, and
// Error(kCorruptFile) for a Git LFS pointer.
std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// Throws Error(kCorruptFile) if the first bytes of a file are those of a Git LFS pointer: a placeholder until
// Git LFS has fetched the file.
void reject_lfs_pointer(std::string_view bytes, const std::filesystem::path& path);

// Returns whether a file exists. Throws Error(kNotFound) for other failures: a dangling link (interrupted
// download), a loop of links, a directory without search permission, a name that is too long.
bool file_exists(const std::filesystem::path& path);

// Throws Error(kNotFound) unless it is a directory; `expected` ends the message.
void require_directory(const std::filesystem::path& path, std::string_view expected);

}  // namespace attend
