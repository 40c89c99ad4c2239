#include "attend/checkpoint/file_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "attend/base/error.h"

namespace attend {
namespace {

void* map(const InputFile& file, size_t num_bytes) {
  if (num_bytes == 0) return nullptr;
  void* memory = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED)
    fail(ErrorCode::kOutOfMemory, file.path().string(), ": ", num_bytes,
         " bytes can not be mapped: ", std::strerror(errno), " (see ulimit -v)");
  // A hint: if the file system supports large folios, pages that are not read yet are read as huge pages, and
  // huge pages of the page cache are mapped as such. Otherwise it has no effect.
  madvise(memory, num_bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

FileMapping::FileMapping(const std::filesystem::path& path)
    : file_(path), status_(file_.status()), memory_(map(file_, num_bytes())) {
  range_.emplace(memory_, num_bytes(), path);
}

FileMapping::~FileMapping() {
  range_.reset();
  if (memory_ != nullptr) munmap(memory_, num_bytes());
}

bool FileMapping::fetch(size_t begin, size_t num_bytes) const {
  const size_t first_page = begin - begin % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* pages = static_cast<std::byte*>(memory_) + first_page;
  // Unlike a memory access, this fails instead of raising SIGBUS if the file was truncated. Linux before 5.14
  // does not support it; pages are then read at first use.
  return madvise(pages, begin + num_bytes - first_page, MADV_POPULATE_READ) == 0 || errno != EFAULT;
}

bool FileMapping::unchanged() const {
  const struct stat now = file_.status();
  return now.st_size == status_.st_size && now.st_mtim.tv_sec == status_.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == status_.st_mtim.tv_nsec;
}

}  // namespace attend
