#include "attend/model/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "attend/base/error.h"

namespace attend {
namespace {

[[noreturn]] void refuse_to_read(const std::filesystem::path& path, int error_number) {
  fail(ErrorCode::kNotFound, path.string(), ": can not be read: ", std::strerror(error_number));
}

int open_file(const std::filesystem::path& path) {
  // A pipe without a writer would be waited for.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) refuse_to_read(path, errno);
  return file;
}

void* map(int file, size_t num_bytes, const std::filesystem::path& path) {
  if (num_bytes == 0) return nullptr;
  void* memory = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) refuse_to_read(path, errno);
  return memory;
}

}  // namespace

FileMapping::FileMapping(const std::filesystem::path& path) : path_(path), file_(open_file(path)) {
  try {
    status_ = status();
    if (!S_ISREG(status_.st_mode)) fail(ErrorCode::kNotFound, path.string(), ": expected a regular file");
    memory_ = map(file_, num_bytes(), path);
  } catch (const Error&) {
    close(file_);
    throw;
  }
  range_.emplace(memory_, num_bytes(), path);
}

FileMapping::~FileMapping() {
  range_.reset();
  if (memory_ != nullptr) munmap(memory_, num_bytes());
  close(file_);
}

std::string FileMapping::read(size_t begin, size_t num_bytes) const {
  std::string copy(num_bytes, '\0');
  size_t done = 0;
  while (done < num_bytes) {
    const ssize_t got = pread(file_, copy.data() + done, num_bytes - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_to_read(path_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  copy.resize(done);
  return copy;
}

bool FileMapping::fetch(size_t begin, size_t num_bytes) const {
  const size_t first_page = begin - begin % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* pages = static_cast<std::byte*>(memory_) + first_page;
  // Unlike a read of our own, this fails instead of raising SIGBUS when the file was cut short. Kernels
  // before 5.14 do not know it; there the pages come when they are first used.
  return madvise(pages, begin + num_bytes - first_page, MADV_POPULATE_READ) == 0 || errno != EFAULT;
}

bool FileMapping::unchanged() const {
  const struct stat now = status();
  return now.st_size == status_.st_size && now.st_mtim.tv_sec == status_.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == status_.st_mtim.tv_nsec;
}

struct stat FileMapping::status() const {
  struct stat status {};
  if (fstat(file_, &status) != 0) refuse_to_read(path_, errno);
  return status;
}

}  // namespace attend
