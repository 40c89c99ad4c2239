// Files of strangers, opened for reading. Only regular files are read: a pipe or a device may never end. What
// stands in the way is said by its name: a link to nothing, a circle of links, a directory, a lack of
// permission.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace attend {

class InputFile {
 public:
  // Throws Error(kNotFound) when it can not be opened or is no regular file.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  // Asked anew each time.
  struct stat status() const;
  // A copy of these bytes, shorter where the file ends. Throws Error(kNotFound).
  std::string read(size_t begin, size_t num_bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

// All of a file. Throws Error(kNotFound) as InputFile does, Error(kUnsupported) above `max_bytes`, and
// Error(kCorruptFile) for a Git LFS pointer.
std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// Throws Error(kCorruptFile) when the first bytes of a file are those of a Git LFS pointer, which stands in a
// file's place until Git LFS has fetched it.
void refuse_lfs_pointer(std::string_view bytes, const std::filesystem::path& path);

// Whether there is a file. Throws Error(kNotFound) where that is not the question: a link to nothing, as in a
// download that was broken off, a circle of links, a folder that may not be searched, a name that is too
// long.
bool file_exists(const std::filesystem::path& path);

// Throws Error(kNotFound) unless it is a directory; `expected` ends the message.
void require_directory(const std::filesystem::path& path, std::string_view expected);

// For a message of what a model directory lacks: " (model.gguf is there: GGUF is not read)" where it has such
// a file, else nothing.
std::string gguf_note(const std::filesystem::path& directory);

}  // namespace attend
