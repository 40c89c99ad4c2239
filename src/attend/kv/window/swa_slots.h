// SwaSlots: maps each page of a pool's full half to a page of its window half.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/change_log.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// A request's tokens have slots of the full half while it runs. Sliding-window layers read only the last
// tokens. So a page of the full half gets a window page when its first token is stored, and requests
// reference it while it is in their windows. A window page without references is unused: its content stays
// valid for requests that begin after a cached prefix, until it is reused for new tokens, least recently used
// first. Invariant: referenced + unused + free = all pages except the padding page.
//
// PageId arguments are pages of the full half. Executors with a pool of two halves read the map through
// DeviceSlotMap (kv/storage/device_slot_map.h): this map on the CPU, a copy on a GPU. A copy may have stale
// entries of pages that lost their window page, since kernels only read keys inside the window.
//
// Not thread-safe: the engine's owner thread writes it, and executors read it while the engine launches.
// Arguments that no correct engine passes throw Error(kInternal) and change nothing.
class SwaSlots {
 public:
  // Numbers of pages include the padding pages. Throws Error(kInvalidArgument) for invalid pool sizes.
  SwaSlots(int page_size, int num_pages, int num_swa_pages);

  // Allocates a window page, with one reference, for each page that contains one of the slots and has none.
  // Returns false and changes nothing if too few window pages are free or unused.
  [[nodiscard]] bool map(View<const TokenSlot> slots);
  // Allocates an unused window page for a page that has none, into which its content is copied. Returns false
  // if no window page is free or unused.
  [[nodiscard]] bool restore(PageId page);
  // Adds a reference to the window pages of these pages.
  void hold(View<const PageId> pages);
  // Removes a reference.
  void drop(View<const PageId> pages);
  // Moves the reference of the request that has `from` to `to`, a page with the same tokens. `to` keeps its
  // window page if it has one, otherwise it gets that of `from`.
  void replace(PageId from, PageId to);
  // Frees the window pages of these pages, which are free in the full half and have no references.
  void forget(View<const PageId> pages);
  // Frees all window pages, regardless of references.
  void reset();

  bool is_mapped(PageId page) const { return first_slot(page) != 0; }
  // Returns the window page; 0: the page has none.
  int window_page(PageId page) const { return first_slot(page) / page_size_; }
  // Sets a function that is called before an unused window page is reused, which was that of `page`.
  void set_before_reuse(std::function<void(PageId page, int window_page)> before_reuse) {
    before_reuse_ = std::move(before_reuse);
  }
  // Returns the slot in the window half; slot 0 (padding page) if the page has no window page.
  SwaSlot translate(TokenSlot slot) const;
  // Translates the slots of a step; -1 stays -1. `translated`: [slots.size()].
  void translate(View<const TokenSlot> slots, View<int32_t> translated) const;

  // Cursor of a copy of the map that is up to date.
  int64_t moved_cursor() const { return moved_pages_.end(); }
  // Calls `copy(first_slot, end_slot)` for each page that got a window page from replace() or restore() after
  // this cursor, and moves the cursor. If the pages are too many to be stored, calls it once for the whole
  // map.
  template <class Copy>
  void follow_moved(int64_t& cursor, const Copy& copy) const {
    const auto copy_page = [&](PageId page) {
      const int64_t first = int64_t{page.value} * page_size_;
      copy(first, first + page_size_);
    };
    if (!moved_pages_.apply_since(cursor, copy_page)) copy(int64_t{0}, slot_map().shape[0]);
  }
  // int32 [slots of the full half]: slot of the window half.
  const TensorView& slot_map() const { return map_.view(); }

  int page_size() const { return page_size_; }
  int num_available_pages() const { return static_cast<int>(free_pages_.size()) + num_unused_; }
  int num_unused_pages() const { return num_unused_; }
  int num_total_pages() const { return num_swa_pages_ - 1; }  // without the padding page
  int num_referenced_pages() const { return num_total_pages() - num_available_pages(); }

  // Throws Error(kInternal) unless each window page except the padding page is free or mapped by exactly one
  // page, and the unused ones are those without references.
  void check_conservation() const;

  static size_t num_bytes(int page_size, int num_pages);

 private:
  // Intrusive list of pages with unused window pages; page 0 is the head.
  struct Links {
    int32_t before = 0, after = 0;
  };

  int32_t* page_entries(PageId page) const;
  int32_t first_slot(PageId page) const { return *page_entries(page); }
  void check_page_ids(View<const PageId> pages) const;
  void set_window_page(PageId page, int32_t window_page);
  int32_t allocate_window_page();
  void give_back(PageId page);
  void add_unused(PageId page);
  void unlink(PageId page);
  int32_t& ref_count(PageId page) { return ref_counts_[static_cast<size_t>(page.value)]; }
  int32_t ref_count(PageId page) const { return ref_counts_[static_cast<size_t>(page.value)]; }

  int page_size_, num_pages_, num_swa_pages_;
  Tensor map_;
  std::vector<PageId> free_pages_;   // of the window half
  std::vector<int32_t> ref_counts_;  // by page
  std::vector<Links> unused_;        // by page; least recently used first
  int num_unused_ = 0;
  std::function<void(PageId, int)> before_reuse_;  // may be empty
  ChangeLog<PageId> moved_pages_;                  // pages that got a window page from replace() or restore()
};

}  // namespace attend
