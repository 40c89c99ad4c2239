// PageStore: storage of page data below host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attend/kv/tier/page_data.h"
#include "attend/kv/tier/page_hash.h"

namespace attend {

// Bit number k: data of PageDataKind(k).
using PageDataMask = uint8_t;
constexpr PageDataMask mask_of(PageDataKind kind) {
  return static_cast<PageDataMask>(1 << static_cast<int>(kind));
}

// Data of a page, by kind; null: none.
struct StoredPage {
  PageHash page;
  std::array<const std::byte*, kNumPageDataKinds> data = {};
};

struct PageRead {
  PageHash page;
  PageDataKind kind = PageDataKind::kTokens;
  std::byte* to = nullptr;
};

// Sizes and counts since the start.
struct PageStoreStats {
  int64_t num_bytes = 0, max_bytes = 0;
  int64_t num_files_written = 0, num_files_read = 0, num_files_evicted = 0;
  int64_t num_rejected_files = 0;  // torn or corrupt, or of another format or model
};

// A store may lose pages at any time, and other servers may add pages. It never returns other data than what
// was written for a page. One thread calls it, except stats(), which is thread-safe.
class PageStore {
 public:
  virtual ~PageStore() = default;

  // Adds pages, each of which follows the one before it. Throws Error with the reason; some of the pages may
  // then be stored.
  virtual void write(std::span<const StoredPage> run) = 0;
  // Returns the data that the store has of each page of a prefix. May return fewer pages: it stops at the
  // first page from number `num_known` on without tokens.
  virtual std::vector<PageDataMask> find(View<const PageHash> prefix, size_t num_known) = 0;
  // Reads data of pages that the last find() returned. Returns the number of first reads that succeeded: the
  // next one failed.
  virtual size_t read(std::span<const PageRead> reads) = 0;
  // Removes all pages of this model.
  virtual void clear() = 0;
  virtual PageStoreStats stats() const = 0;
};

}  // namespace attend
