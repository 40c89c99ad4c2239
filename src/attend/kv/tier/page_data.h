// PageData: a cache group's data of the pages that the prefix cache owns, for tiers below the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "attend/base/ids.h"

namespace attend {

enum class PageDataKind : uint8_t {
  kTokens,  // K and V, or latent rows, of the page's tokens
  kWindow,  // K and V of the layers of a window half
  kState,   // snapshot of recurrent states at the end of the page
};
inline constexpr size_t kNumPageDataKinds = 3;

// Belongs to a CacheGroup. Not thread-safe, except first_needed().
class PageData {
 public:
  // Called before the group reuses the storage of a page's data for other data.
  using BeforeDrop = std::function<void(PageId page, int index)>;

  virtual ~PageData() = default;

  virtual PageDataKind kind() const = 0;
  // A row that begins after `num_pages` cached pages needs the data of the pages [first_needed(), num_pages).
  // It does not decrease as `num_pages` increases. Thread-safe.
  virtual int first_needed(int num_pages) const = 0;
  // Returns the index of the page's data in the group's storage (PageBytes); nullopt: the group has none.
  virtual std::optional<int> find(PageId page) const = 0;
  // Allocates storage for the data of a page that the prefix cache owns and that has none. `position`: tokens
  // from the start of the prefix to the end of the page. Returns the index, where the caller writes the data;
  // nullopt: all storage is in use.
  virtual std::optional<int> restore(PageId page, int position) = 0;

  // Sets a function that is called from now on; empty: none.
  virtual void set_before_drop(BeforeDrop before_drop) = 0;
};

// Returns the largest number of pages, at most `num_pages`, that a row can begin after. has(page): the data
// of this page is available.
template <class Has>
int longest_resumable(const PageData& data, int num_pages, const Has& has) {
  for (int end = num_pages; end > 0;) {
    const int first = data.first_needed(end);
    int page = end;
    while (page > first && has(page - 1)) --page;
    if (page <= first) return end;
    end = page - 1;  // every prefix that is shorter than `end` and has this page needs it too
  }
  return 0;
}

}  // namespace attend
