#include "attend/kv/window/swa_slots.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/kernels/metadata/metadata.h"
#include "attend/kv/kv_pool.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

// Above this number of pages, one copy of the whole map is faster.
constexpr int kMaxMovedPages = 1024;

}  // namespace

SwaSlots::SwaSlots(int page_size, int num_pages, int num_swa_pages)
    : page_size_(page_size),
      num_pages_(num_pages),
      num_swa_pages_(num_swa_pages),
      moved_pages_(kMaxMovedPages) {
  check_pages(page_size, num_pages, "SwaSlots");
  check_pages(page_size, num_swa_pages, "SwaSlots");
  const int64_t num_slots = int64_t{num_pages} * page_size;
  // Arena memory is committed on first touch.
  map_ = Arena(num_bytes(page_size, num_pages), "SwaSlots").allocate({num_slots}, DType::kI32);
  free_pages_.reserve(static_cast<size_t>(num_swa_pages));
  ref_counts_.resize(static_cast<size_t>(num_pages));
  unused_.resize(static_cast<size_t>(num_pages));
  reset();
}

void SwaSlots::reset() {
  std::ranges::fill(map_.span<int32_t>(), 0);
  std::ranges::fill(ref_counts_, 0);
  unused_[0] = {};
  num_unused_ = 0;
  free_pages_.clear();
  for (int32_t page = num_swa_pages_ - 1; page > 0; --page) free_pages_.emplace_back(page);
}

bool SwaSlots::map(View<const TokenSlot> slots) {
  int num_new = 0;
  PageId last;
  const auto is_new = [&](TokenSlot slot) {
    const PageId page(slot.value / page_size_);
    ensure(slot.value >= page_size_ && page.value < num_pages_, "SwaSlots: slot ", slot, ": slots are ",
           page_size_, " to ", num_pages_ * page_size_ - 1, ", those before are the padding page");
    return page != std::exchange(last, page) && !is_mapped(page);
  };
  // Slots of a page are adjacent, so each page is counted once.
  for (const TokenSlot slot : slots) num_new += is_new(slot);
  if (num_new > num_available_pages()) return false;
  last = {};
  for (const TokenSlot slot : slots) {
    if (!is_new(slot)) continue;
    const PageId page(slot.value / page_size_);
    set_window_page(page, allocate_window_page());
    ref_count(page) = 1;
  }
  return true;
}

bool SwaSlots::restore(PageId page) {
  const PageId pages[] = {page};
  check_page_ids(pages);
  ensure(!is_mapped(page), "SwaSlots: page ", page, " has a window page");
  if (num_available_pages() == 0) return false;
  set_window_page(page, allocate_window_page());
  add_unused(page);
  moved_pages_.add(page);
  return true;
}

void SwaSlots::hold(View<const PageId> pages) {
  check_page_ids(pages);
  for (const PageId page : pages) ensure(is_mapped(page), "SwaSlots: page ", page, " has no window page");
  for (const PageId page : pages)
    if (ref_count(page)++ == 0) unlink(page);
}

void SwaSlots::drop(View<const PageId> pages) {
  check_page_ids(pages);
  for (const PageId page : pages) ensure(ref_count(page) > 0, "SwaSlots: no request references page ", page);
  for (const PageId page : pages)
    if (--ref_count(page) == 0) add_unused(page);
}

void SwaSlots::replace(PageId from, PageId to) {
  ensure(from != to, "SwaSlots: page ", from, " replaced by itself");
  const PageId one[] = {to}, other[] = {from};
  check_page_ids(one);
  check_page_ids(other);
  ensure(ref_count(from) > 0, "SwaSlots: no request references page ", from);
  if (!is_mapped(to)) {
    ensure(ref_count(from) == 1, "SwaSlots: page ", from, " has references of other requests");
    set_window_page(to, first_slot(from) / page_size_);
    std::fill_n(page_entries(from), page_size_, 0);
    std::swap(ref_count(from), ref_count(to));
    moved_pages_.add(to);
    return;
  }
  hold(one);
  drop(other);
}

void SwaSlots::forget(View<const PageId> pages) {
  check_page_ids(pages);
  for (const PageId page : pages)
    ensure(ref_count(page) == 0, "SwaSlots: free page ", page, " is referenced");
  // In reverse order, so that the first page is allocated first.
  for (size_t i = pages.size(); i-- > 0;) {
    if (!is_mapped(pages[i])) continue;
    unlink(pages[i]);
    give_back(pages[i]);
  }
}

SwaSlot SwaSlots::translate(TokenSlot slot) const {
  ensure(slot.value >= 0 && slot.value / page_size_ < num_pages_, "SwaSlots: slot ", slot,
         ": slots are 0 to ", num_pages_ * page_size_ - 1);
  return SwaSlot(map_.view().as<int32_t>()[slot.value]);
}

void SwaSlots::translate(View<const TokenSlot> slots, View<int32_t> translated) const {
  kernels::translate_slots(map_.view().as<int32_t>(), raw(slots), translated);
}

void SwaSlots::check_conservation() const {
  std::vector<bool> seen(static_cast<size_t>(num_swa_pages_), false);
  const auto count = [&](int32_t page, std::string_view what) {
    ensure(page > 0 && page < num_swa_pages_, "SwaSlots: window page ", page, " is ", what,
           ", window pages are 1 to ", num_swa_pages_ - 1);
    ensure(!seen[static_cast<size_t>(page)], "SwaSlots: window page ", page, " is ", what, " and elsewhere");
    seen[static_cast<size_t>(page)] = true;
  };
  for (const PageId page : free_pages_) count(page.value, "free");
  int num_unused = 0;
  for (int32_t id = 1; id < num_pages_; ++id) {
    const PageId page(id);
    const int32_t first = first_slot(page);
    for (int i = 1; i < page_size_; ++i)
      ensure(page_entries(page)[i] == (first != 0 ? first + i : 0), "SwaSlots: page ", page,
             " is mapped in part");
    ensure(ref_count(page) >= 0 && (first != 0 || ref_count(page) == 0), "SwaSlots: page ", page,
           " without a window page has ", ref_count(page), " references");
    if (first == 0) continue;
    count(first / page_size_, "mapped");
    num_unused += ref_count(page) == 0;
  }
  ensure(std::find(seen.begin() + 1, seen.end(), false) == seen.end(),
         "SwaSlots: a window page is neither free nor mapped");
  int num_listed = 0;
  for (int32_t id = unused_[0].after; id != 0 && num_listed <= num_unused_; ++num_listed) {
    ensure(is_mapped(PageId(id)) && ref_count(PageId(id)) == 0, "SwaSlots: page ", id, " is not unused");
    id = unused_[static_cast<size_t>(id)].after;
  }
  ensure(num_listed == num_unused_ && num_unused == num_unused_, "SwaSlots: ", num_unused,
         " unreferenced pages, ", num_listed, " in the list, but a count of ", num_unused_);
}

size_t SwaSlots::num_bytes(int page_size, int num_pages) {
  return static_cast<size_t>(page_size) * static_cast<size_t>(num_pages) * sizeof(int32_t);
}

int32_t* SwaSlots::page_entries(PageId page) const {
  return map_.view().as<int32_t>() + int64_t{page.value} * page_size_;
}

void SwaSlots::check_page_ids(View<const PageId> pages) const {
  for (const PageId page : pages)
    ensure(page.value > 0 && page.value < num_pages_, "SwaSlots: page ", page, ": pages are 1 to ",
           num_pages_ - 1);
}

void SwaSlots::set_window_page(PageId page, int32_t window_page) {
  int32_t* const entries = page_entries(page);
  for (int i = 0; i < page_size_; ++i) entries[i] = window_page * page_size_ + i;
}

int32_t SwaSlots::allocate_window_page() {
  if (free_pages_.empty()) {
    const PageId oldest(unused_[0].after);
    if (before_reuse_) before_reuse_(oldest, window_page(oldest));
    unlink(oldest);
    give_back(oldest);
  }
  const PageId page = free_pages_.back();
  free_pages_.pop_back();
  return page.value;
}

void SwaSlots::give_back(PageId page) {
  free_pages_.emplace_back(first_slot(page) / page_size_);
  std::fill_n(page_entries(page), page_size_, 0);
}

void SwaSlots::add_unused(PageId page) {
  Links& head = unused_[0];
  unused_[static_cast<size_t>(page.value)] = {.before = head.before, .after = 0};
  unused_[static_cast<size_t>(head.before)].after = page.value;
  head.before = page.value;
  ++num_unused_;
}

void SwaSlots::unlink(PageId page) {
  const Links links = unused_[static_cast<size_t>(page.value)];
  unused_[static_cast<size_t>(links.before)].after = links.after;
  unused_[static_cast<size_t>(links.after)].before = links.before;
  --num_unused_;
}

}  // namespace attend
