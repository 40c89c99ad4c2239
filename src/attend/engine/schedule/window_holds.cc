#include "attend/engine/schedule/window_holds.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

WindowHolds::WindowHolds(SwaSlots* slots, int window_left, int num_rows)
    : slots_(slots), window_left_(window_left), first_held_(static_cast<size_t>(num_rows)) {}

int WindowHolds::first_visible_page(int num_computed) const {
  return std::max(0, num_computed - window_left_) / slots_->page_size();
}

int WindowHolds::num_usable(View<const PageId> prefix) const {
  const auto num_pages = static_cast<int>(prefix.size());
  if (slots_ == nullptr) return num_pages;
  int usable = 0, first_mapped = 0;  // of the run of mapped pages that ends here
  for (int end = 1; end <= num_pages; ++end) {
    if (!slots_->is_mapped(prefix[static_cast<size_t>(end) - 1])) first_mapped = end;
    if (first_mapped <= first_visible_page(end * slots_->page_size())) usable = end;
  }
  return usable;
}

void WindowHolds::begin(RequestRow row, View<const PageId> prefix) {
  if (slots_ == nullptr) return;
  const auto num_pages = static_cast<int>(prefix.size());
  const int first = std::min(num_pages, first_visible_page(num_pages * slots_->page_size()));
  slots_->hold(prefix.subspan(static_cast<size_t>(first)));
  first_held_[static_cast<size_t>(row.value)] = first;
}

void WindowHolds::leave(RequestRow row, View<const TokenSlot> slots, int num_computed) {
  if (slots_ != nullptr) drop_before(row, slots, first_visible_page(num_computed));
}

void WindowHolds::replace(RequestRow row, int page_idx, PageId from, PageId to) {
  if (slots_ != nullptr && page_idx >= first_held_[static_cast<size_t>(row.value)]) slots_->replace(from, to);
}

void WindowHolds::end(RequestRow row, View<const TokenSlot> slots, int num_pages) {
  if (slots_ == nullptr) return;
  drop_before(row, slots, num_pages);
  first_held_[static_cast<size_t>(row.value)] = 0;
}

void WindowHolds::reset() {
  if (slots_ == nullptr) return;
  slots_->reset();
  std::ranges::fill(first_held_, 0);
}

void WindowHolds::check(RequestRow row, View<const TokenSlot> slots, int num_pages) const {
  if (slots_ == nullptr) return;
  const int page_size = slots_->page_size();
  for (int page = first_held_[static_cast<size_t>(row.value)]; page < num_pages; ++page)
    ensure(slots_->is_mapped(PageId(slots[static_cast<size_t>(page * page_size)].value / page_size)),
           "request row ", row, ": page ", page, " has no window page, though its next query sees it");
}

void WindowHolds::drop_before(RequestRow row, View<const TokenSlot> slots, int end) {
  int& first = first_held_[static_cast<size_t>(row.value)];
  scratch_.clear();
  for (int page = first; page < end; ++page)
    scratch_.emplace_back(slots[static_cast<size_t>(page * slots_->page_size())].value / slots_->page_size());
  slots_->drop(scratch_);
  first = std::max(first, end);
}

}  // namespace attend
