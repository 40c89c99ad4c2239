// CacheTierStats: sizes and counts of the tiers of the prefix cache.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

// When pages of the pool are copied to host memory.
enum class HostWritePolicy : uint8_t {
  kWriteThrough,  // when they are computed
  kWriteBack,     // when they are evicted
};
std::string_view to_string(HostWritePolicy policy);
// Throws Error(kInvalidArgument) for a name other than write_through and write_back.
HostWritePolicy parse_host_write_policy(std::string_view name);

// Pages of tokens; counts are since the start. For host pages: total = free + cached + pinned.
struct CacheTierStats {
  int64_t num_host_pages = 0;         // total; 0: no host tier
  int64_t num_host_cached_pages = 0;  // may be evicted
  int64_t num_host_pinned_pages = 0;  // being copied or written to the disk
  int64_t num_host_free_pages = 0;
  int64_t num_demoted_pages = 0;   // copied from the pool to the host
  int64_t num_host_hit_pages = 0;  // copied from the host to the pool
  int64_t num_disk_hit_pages = 0;  // copied from the disk to the pool
  int64_t num_dropped_pages = 0;   // not kept, because all pages of the host tier were pinned
  int64_t num_disk_bytes = 0, max_disk_bytes = 0;
  int64_t num_disk_failures = 0;   // jobs that failed, such as writes to a full disk
  int64_t num_rejected_files = 0;  // PageStoreStats::num_rejected_files
};

}  // namespace attend
#pragma GCC visibility pop
