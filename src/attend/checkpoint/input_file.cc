#include "attend/checkpoint/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

bool is_link(const std::filesystem::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

// Returns the first dangling link among the path's components, if any.
std::filesystem::path broken_link(const std::filesystem::path& path) {
  std::filesystem::path so_far;
  for (const std::filesystem::path& part : path) {
    so_far /= part;
    struct stat status {};
    if (is_link(so_far) && stat(so_far.c_str(), &status) != 0) return so_far;
  }
  return {};
}

std::string describe_error(const std::filesystem::path& path, int error_number) {
  switch (error_number) {
    case ENOENT:
      if (const std::filesystem::path link = broken_link(path); !link.empty()) {
        std::error_code ignored;
        return "the link " + (link == path ? "" : link.string() + " ") + "is broken: it leads to " +
               std::filesystem::read_symlink(link, ignored).string() +
               ", which does not exist (was a download broken off?)";
      }
      return "no such file";
    case ENOTDIR:
      return "no such file: a part of the path is no directory";
    case EACCES:
    case EPERM:
      return "permission denied: expected a file that this user may read";
    case ELOOP:
      return "its links lead in a circle";
    case ENAMETOOLONG:
      return "a name that is longer than the file system allows";
    default:
      return std::string("can not be read: ") + std::strerror(error_number);
  }
}

[[noreturn]] void reject(const std::filesystem::path& path, int error_number) {
  fail(ErrorCode::kNotFound, path.string(), ": ", describe_error(path, error_number));
}

const char* file_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void require_regular_file(const std::filesystem::path& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode))
    fail(ErrorCode::kNotFound, path.string(), ": is ", file_kind(status.st_mode),
         ": expected a regular file");
}

int open_file(const std::filesystem::path& path) {
  // Opening a pipe without a writer would block.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  // A file that cannot be opened may still be described by stat.
  struct stat status {};
  const int error_number = errno;
  if (file < 0 && stat(path.c_str(), &status) == 0) require_regular_file(path, status);
  if (file < 0) reject(path, error_number);
  return file;
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path), descriptor_(open_file(path)) {
  try {
    require_regular_file(path, status());
  } catch (const Error&) {
    close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() { close(descriptor_); }

struct stat InputFile::status() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) reject(path_, errno);
  return status;
}

std::string InputFile::read(size_t begin, size_t num_bytes) const {
  std::string copy(num_bytes, '\0');
  size_t done = 0;
  while (done < num_bytes) {
    const ssize_t got =
        pread(descriptor_, copy.data() + done, num_bytes - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) reject(path_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  copy.resize(done);
  return copy;
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  constexpr size_t kPart = size_t{1} << 20;
  const InputFile file(path);
  const auto reject_size = [&](size_t num_bytes) {
    fail(ErrorCode::kUnsupported, path.string(), ": ", num_bytes, " bytes: at most ", max_bytes);
  };
  const auto num_bytes = static_cast<size_t>(file.status().st_size);
  if (num_bytes > max_bytes) reject_size(num_bytes);
  // Growing files and files of /proc have more bytes than their size.
  std::string text;
  for (size_t size = std::max(num_bytes, size_t{1});; size = kPart) {
    const std::string part = file.read(text.size(), std::min(size, max_bytes + 1 - text.size()));
    if (part.empty()) break;
    text += part;
    if (text.size() > max_bytes) reject_size(text.size());
  }
  reject_lfs_pointer(text, path);
  return text;
}

void reject_lfs_pointer(std::string_view bytes, const std::filesystem::path& path) {
  if (bytes.starts_with(kLfsPointer))
    fail(ErrorCode::kCorruptFile, path.string(),
         ": is a Git LFS pointer to the file, not the file: expected what `git lfs pull` fetches in its "
         "place");
}

bool file_exists(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return true;
  const int error_number = errno;
  const bool absent = error_number == ENOTDIR || (error_number == ENOENT && broken_link(path).empty());
  if (!absent) reject(path, error_number);
  return false;
}

void require_directory(const std::filesystem::path& path, std::string_view expected) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    const int error_number = errno;
    const bool absent = error_number == ENOENT && broken_link(path).empty();
    fail(ErrorCode::kNotFound, path.string(), ": ",
         absent ? "no such directory" : describe_error(path, error_number), ": expected ", expected);
  }
  if (!S_ISDIR(status.st_mode)) fail(ErrorCode::kNotFound, path.string(), ": expected ", expected);
}

}  // namespace attend
