// SwaSlots: which page of a pool's sliding-window half stands behind each page of its full half.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/change_log.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend {

// A request's tokens have slots of the full half for as long as it runs. Layers with a window read the last
// tokens alone, so a page of the full half has a window page from the step that stores its first token on,
// and requests hold it while it is inside their windows. A window page that nobody holds is idle: what it has
// stays good, for a request that starts behind a cached prefix, until the page is wanted for new tokens; the
// one that is idle for longest goes first. Conserves: held + idle + free = all but the padding page.
//
// Pages named here are those of the full half. Every executor with a pool in two halves reads the map through
// DeviceSlotMap (kv/storage/device_rows.h): the map itself on the CPU, a copy on a GPU. Entries of pages that
// lost theirs may stay in a copy: kernels read keys inside the window only.
//
// Not thread-safe: the engine's owner thread writes it, and executors read it while the engine launches. What
// no right engine passes throws Error(kInternal) and changes nothing.
class SwaSlots {
 public:
  // Pages of both halves, their padding pages included. Throws Error(kInvalidArgument) for sizes that are no
  // pool's.
  SwaSlots(int page_size, int num_pages, int num_swa_pages);

  // Gives every page that holds one of the slots a window page, held once, unless it has one. Returns false,
  // changing nothing, when too few are free or idle.
  [[nodiscard]] bool map(View<const TokenSlot> slots);
  // One more request sees these pages, which have window pages.
  void hold(View<const PageId> pages);
  // One request less does.
  void drop(View<const PageId> pages);
  // `to` has the same tokens as `from`, and takes its place in the request that holds `from`: with the window
  // page that it has, or else with that of `from`.
  void replace(PageId from, PageId to);
  // The pages are free in the full half: gives back what window pages they have. Nobody may hold them.
  void forget(View<const PageId> pages);
  // Forgets everything, whoever held it.
  void reset();

  bool is_mapped(PageId page) const { return first_slot(page) != 0; }
  // Slot 0, of the padding page, for a slot of a page that has no window page.
  SwaSlot translate(TokenSlot slot) const;
  // The same for the slots of a step; -1 stays -1. `translated`: as many.
  void translate(View<const TokenSlot> slots, View<int32_t> translated) const;

  // Cursor of a copy of the map that is complete now.
  int64_t moved_cursor() const { return moved_pages_.end(); }
  // Calls `copy(first_slot, end_slot)` for the entries that a copy with this cursor lacks of pages to which
  // replace() gave window pages, and moves the cursor: page by page, or, where the pages are too many to be
  // kept, the whole map.
  template <class Copy>
  void follow_moved(int64_t& cursor, const Copy& copy) const {
    const auto copy_page = [&](PageId page) {
      const int64_t first = int64_t{page.value} * page_size_;
      copy(first, first + page_size_);
    };
    if (!moved_pages_.follow(cursor, copy_page)) copy(int64_t{0}, slot_map().shape[0]);
  }
  // int32 [slots of the full half]: slot of the window half.
  const TensorView& slot_map() const { return map_.view(); }

  int page_size() const { return page_size_; }
  int num_available_pages() const { return static_cast<int>(free_pages_.size()) + num_unused_; }
  int num_unused_pages() const { return num_unused_; }
  int num_total_pages() const { return num_swa_pages_ - 1; }  // without the padding page
  int num_referenced_pages() const { return num_total_pages() - num_available_pages(); }

  // Throws Error(kInternal) unless every window page but the padding page is either free, once, or stands
  // behind one page, and idle are those that nobody holds.
  void check_conservation() const;

  static size_t num_bytes(int page_size, int num_pages);

 private:
  // A list of idle pages, through the pages themselves; page 0 is its head.
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
  std::vector<Links> idle_;          // by page; in the order in which they became idle
  int num_unused_ = 0;
  ChangeLog<PageId> moved_pages_;  // to these, by replace()
};

}  // namespace attend
