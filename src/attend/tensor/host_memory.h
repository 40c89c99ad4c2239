// Memory limits of this process on the host.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string_view>

namespace attend {

inline constexpr size_t kNoMemoryLimit = std::numeric_limits<size_t>::max();

// Files of a version of control groups.
struct CgroupFiles {
  const char *limit, *usage;
  std::string_view file_pages[2];  // lines of memory.stat with file pages, which can be reclaimed
};
inline constexpr CgroupFiles kCgroup2{"memory.max", "memory.current", {"active_file", "inactive_file"}};
inline constexpr CgroupFiles kCgroup1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};

// Returns the minimum of the bytes left by the control group at `path` (from /proc/self/cgroup) under the
// mount point `root` and by all its parents; kNoMemoryLimit without a limit.
size_t cgroup_memory_left(const std::filesystem::path& root, const std::filesystem::path& path,
                          const CgroupFiles& files);

// Returns the bytes left by the process's own limits: address space (ulimit -v) and data (ulimit -d).
size_t rlimit_memory_left();

}  // namespace attend
