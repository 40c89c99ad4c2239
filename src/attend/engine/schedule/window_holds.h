// WindowHolds: what requests hold of the half of a pool for layers with a window.
#pragma once

#include <vector>

#include "attend/base/ids.h"
#include "attend/kv/swa_slots.h"
#include "attend/tensor/tensor.h"

namespace attend {

// A request holds the window pages of those of its pages that its next query sees. What is behind them may go
// to others; as long as it has not, a request that starts behind a cached prefix finds its window there.
class WindowHolds {
 public:
  // `slots`: null for a pool without such a half, of which nothing is held. `window_left`: the widest window
  // of the model, inclusive.
  WindowHolds(SwaSlots* slots, int window_left, int num_rows);

  explicit operator bool() const { return slots_ != nullptr; }
  // At most so many of a cached prefix's pages can be started behind: the window before their end is there.
  int num_usable(View<const PageId> prefix) const;
  // A request starts behind these pages.
  void begin(RequestRow row, View<const PageId> prefix);
  // Window pages for the new slots of a request. False, changing nothing, when they are too few.
  [[nodiscard]] bool map(View<const TokenSlot> slots) { return slots_ == nullptr || slots_->map(slots); }
  bool has_pages(int num_new) const { return slots_ == nullptr || num_new <= slots_->num_available_pages(); }
  // `num_computed` of its tokens are computed: what its next query does not see is not held any more.
  void leave(RequestRow row, View<const TokenSlot> slots, int num_computed);
  // Page `page_idx` of the request is `to` from now on, which holds the same tokens.
  void replace(RequestRow row, int page_idx, PageId from, PageId to);
  // A request does not need these pages of its end any more, which it holds.
  void drop(View<const PageId> pages) {
    if (slots_ != nullptr) slots_->drop(pages);
  }
  // The request of `num_pages` pages ends.
  void end(RequestRow row, View<const TokenSlot> slots, int num_pages);
  // These pages are free in the full half.
  void forget(View<const PageId> pages) {
    if (slots_ != nullptr) slots_->forget(pages);
  }
  void reset();

  // Throws Error(kInternal) unless the request holds what its next query sees.
  void check(RequestRow row, View<const TokenSlot> slots, int num_pages) const;
  void check_conservation() const {
    if (slots_ != nullptr) slots_->check_conservation();
  }

 private:
  int first_visible_page(int num_computed) const;
  // Drops pages [first held, end).
  void drop_before(RequestRow row, View<const TokenSlot> slots, int end);

  SwaSlots* slots_;
  int window_left_;
  std::vector<int> first_held_;  // by row: page
  std::vector<PageId> scratch_;
};

}  // namespace attend
