// HostTier: copies of page data in host memory, by the hash of the page.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "attend/kv/tier/page_data.h"
#include "attend/kv/tier/page_hash.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Memory consists of cells of one size for each kind of data. A cell is free, cached (an entry that may be
// evicted, least recently used first), or pinned: free + cached + pinned = total for each kind.
//
// Not thread-safe; other threads and devices may access the data of pinned pages.
class HostTier {
 public:
  struct Config {
    std::array<int, kNumPageDataKinds> num_cells = {};
    std::array<size_t, kNumPageDataKinds> cell_bytes = {};
    Device device = {};  // a GPU: its kernels access the memory, which is page-locked

    size_t num_bytes() const;
  };
  // Throws Error(kOutOfMemory) with needed and free bytes, or with the bytes that cannot be page-locked.
  explicit HostTier(const Config& config);

  // Returns the data; null: it is not here.
  std::byte* find(const PageHash& page, PageDataKind kind) const;
  bool has(const PageHash& page, PageDataKind kind) const { return find(page, kind) != nullptr; }
  bool has_any(const PageHash& page) const { return entries_.contains(page); }
  // Adds data that is not here. Returns the cell, which the caller fills; null: all cells are pinned. If
  // there is no free cell, evicts the least recently used one; an entry that loses its tokens is removed.
  [[nodiscard]] std::byte* add(const PageHash& page, PageDataKind kind);
  // Makes the page the most recently used one.
  void touch(const PageHash& page);
  // Pinned pages are not evicted. Pins are counted. The page has data.
  void pin(const PageHash& page);
  void unpin(const PageHash& page);
  // Removes all pages that are not pinned.
  void clear();

  // Whether the store below has all data of the page. False after add().
  bool is_stored(const PageHash& page) const;
  void set_stored(const PageHash& page, bool is_stored);

  int num_total(PageDataKind kind) const { return config_.num_cells[index(kind)]; }
  int num_free(PageDataKind kind) const { return static_cast<int>(kinds_[index(kind)].free.size()); }
  int num_cached(PageDataKind kind) const { return static_cast<int>(kinds_[index(kind)].by_age.size()); }
  int num_pinned(PageDataKind kind) const { return kinds_[index(kind)].num_pinned; }
  int num_pages() const { return static_cast<int>(entries_.size()); }

  // Throws Error(kInternal) unless each cell is free or belongs to one entry, and all counts are right.
  void check() const;

 private:
  struct Entry;
  using Age = std::list<Entry*>;
  struct Entry {
    PageHash page;
    std::array<int, kNumPageDataKinds> cells = {-1, -1, -1};
    std::array<Age::iterator, kNumPageDataKinds> ages = {};  // valid for cells of entries without pins
    int num_pins = 0;
    bool is_stored = false;
  };
  struct Kind {
    std::vector<int> free;
    Age by_age;  // entries without pins, least recently used first
    int num_pinned = 0;
    Tensor memory;
  };

  static constexpr size_t index(PageDataKind kind) { return static_cast<size_t>(kind); }
  std::byte* address(size_t kind, int cell) const;
  void drop_cell(Entry& entry, size_t kind);
  void drop(Entry& entry);

  Config config_;
  std::array<Kind, kNumPageDataKinds> kinds_;
  std::shared_ptr<void> lock_;  // GPUs
  std::unordered_map<PageHash, Entry> entries_;
};

}  // namespace attend
