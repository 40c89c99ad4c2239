// How much memory of the host a process may still take.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string_view>

namespace attend {

inline constexpr size_t kNoMemoryLimit = std::numeric_limits<size_t>::max();

// The files of a version of control groups.
struct CgroupFiles {
  const char *limit, *usage;
  std::string_view
      file_pages[2];  // lines of memory.stat: pages of files, which make room when memory is asked for
};
inline constexpr CgroupFiles kCgroup2{"memory.max", "memory.current", {"active_file", "inactive_file"}};
inline constexpr CgroupFiles kCgroup1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};

// Bytes that the control group at `path` (as /proc/self/cgroup has it) under `root`, where the groups are
// mounted, and every group around it leave; kNoMemoryLimit where none says.
size_t cgroup_memory_left(const std::filesystem::path& root, const std::filesystem::path& path,
                          const CgroupFiles& files);

// Bytes that the process's own limits leave: its address space (ulimit -v) and its data (ulimit -d).
size_t rlimit_memory_left();

}  // namespace attend
