#include "attend/tensor/host_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace attend {
namespace {

// Reads a number from a file, or returns `otherwise` ("max" in cgroup files means no limit).
size_t read_number(const std::filesystem::path& path, size_t otherwise) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : otherwise;
}

size_t file_page_bytes(const std::filesystem::path& group, const CgroupFiles& files) {
  std::ifstream file(group / "memory.stat");
  std::string key;
  size_t value = 0, bytes = 0;
  while (file >> key >> value)
    if (key == files.file_pages[0] || key == files.file_pages[1]) bytes += value;
  return bytes;
}

size_t memory_left(const std::filesystem::path& group, const CgroupFiles& files) {
  const size_t limit = read_number(group / files.limit, kNoMemoryLimit);
  if (limit == kNoMemoryLimit) return kNoMemoryLimit;
  const size_t held = read_number(group / files.usage, 0);
  const size_t used = held - std::min(held, file_page_bytes(group, files));
  return limit - std::min(limit, used);
}

size_t memory_left(int resource, size_t used_bytes) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kNoMemoryLimit;
  return limit.rlim_cur - std::min<size_t>(limit.rlim_cur, used_bytes);
}

}  // namespace

size_t cgroup_memory_left(const std::filesystem::path& root, const std::filesystem::path& path,
                          const CgroupFiles& files) {
  // Inside a container the path may be the host's, while the mounted root is the container's own group.
  std::filesystem::path group = root;
  size_t left = memory_left(group, files);
  for (const std::filesystem::path& part : path.relative_path()) {
    group /= part;
    left = std::min(left, memory_left(group, files));
  }
  return left;
}

size_t rlimit_memory_left() {
  // Fields in pages (proc(5)): all, resident, shared, text, libraries, data and stack.
  size_t sizes[6] = {};
  std::ifstream file("/proc/self/statm");
  for (size_t& size : sizes) file >> size;
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::min(memory_left(RLIMIT_AS, page_bytes * sizes[0]),
                  memory_left(RLIMIT_DATA, page_bytes * sizes[5]));
}

}  // namespace attend
