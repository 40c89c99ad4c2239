#include "attend/engine/speculation/draft_group.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

DraftGroup::DraftGroup(ReqToTokenPool& rows, int page_size, int num_pages, bool is_head)
    : rows_(rows),
      page_size_(page_size),
      is_head_(is_head),
      row_states_(static_cast<size_t>(rows.num_rows())),
      page_states_(static_cast<size_t>(num_pages)) {
  scratch_.reserve(static_cast<size_t>(rows.max_context_len()));
}

PageId DraftGroup::find_page(RequestRow row, int position) const {
  return PageId(rows_.row(row)[static_cast<size_t>(position)].value / page_size_);
}

// Positions after the row's last slot are of the padding page, which is never complete.
int DraftGroup::num_tokens(RequestRow row) {
  const int before = count(row);
  int& num = count(row);
  while (num < rows_.max_context_len() && is_complete(find_page(row, num)))
    num = std::min(rows_.max_context_len(), (num / page_size_ + 1) * page_size_);
  if (num > before) {
    // Copies of the row on a device have only slots that the draft model computed, or that are shared.
    const View<const TokenSlot> slots =
        rows_.row(row).subspan(static_cast<size_t>(before), static_cast<size_t>(num - before));
    scratch_.assign(slots.begin(), slots.end());
    rows_.write_shared(row, before, scratch_);
  }
  return num;
}

void DraftGroup::set_num_tokens(RequestRow row, int num_tokens, int num_known) {
  mark_complete(row, count(row), std::min(num_tokens, num_known));
  count(row) = num_tokens;
}

void DraftGroup::mark_complete(RequestRow row, int begin, int end) {
  for (int page = begin / page_size_; (page + 1) * page_size_ <= end; ++page)
    of(find_page(row, page * page_size_)) = PageState::kComplete;
}

int DraftGroup::match(View<const PageId> prefix) const {
  if (!is_head_) return static_cast<int>(prefix.size());
  const auto missing = std::ranges::find_if(
      prefix, [&](PageId page) { return page_states_[static_cast<size_t>(page.value)] == PageState::kNone; });
  return static_cast<int>(missing - prefix.begin());
}

void DraftGroup::grow(RequestRow row, int num_before, int num_after, const NewTokens&) {
  if (!is_head_ || of(row).lost) return;
  for (int page = num_before / page_size_; page * page_size_ < num_after; ++page)
    if (PageState& state = of(find_page(row, page * page_size_)); state == PageState::kNone)
      state = PageState::kExpected;
}

void DraftGroup::set_lost(RequestRow row) {
  of(row).lost = true;
  drop_expected(row);
}

void DraftGroup::drop_expected(RequestRow row) {
  for (int page = of(row).first_own_page; page * page_size_ < rows_.max_context_len(); ++page) {
    const PageId id = find_page(row, page * page_size_);
    if (id.value == 0) return;  // after the row's last slot
    if (of(id) == PageState::kExpected) of(id) = PageState::kNone;
  }
}

void DraftGroup::begin(RequestRow row, int first_page, View<const PageId> pages, int) {
  int& num = count(row);
  if (first_page == 0) of(row) = {.first_own_page = static_cast<int>(pages.size())};
  for (const PageId page : pages) {
    if (num != first_page * page_size_ || !is_complete(page)) return;
    num = ++first_page * page_size_;
  }
}

void DraftGroup::rewind(RequestRow row, int, int num_after) { count(row) = std::min(count(row), num_after); }

// Drafts that were accepted are final now.
void DraftGroup::snapshot(RequestRow row, int num_tokens) {
  mark_complete(row, 0, std::min(count(row), num_tokens));
}

void DraftGroup::replace(RequestRow row, int first_page, View<const PageId>, View<const PageId> to) {
  for (const PageId page : to) {
    if (!is_complete(page)) count(row) = std::min(count(row), first_page * page_size_);
    ++first_page;
  }
}

void DraftGroup::release(RequestRow row, int) {
  drop_expected(row);
  of(row) = {};
}

void DraftGroup::forget(View<const PageId> pages) {
  for (const PageId page : pages) of(page) = PageState::kNone;
}

void DraftGroup::reset() {
  std::ranges::fill(row_states_, RowState());
  std::ranges::fill(page_states_, PageState::kNone);
}

void DraftGroup::check(View<const CachedRow> rows) const {
  std::vector<int> num_slots(row_states_.size());
  for (const CachedRow& each : rows) num_slots[static_cast<size_t>(each.row.value)] = each.num_tokens;
  for (size_t row = 0; row < num_slots.size(); ++row)
    ensure(row_states_[row].num_tokens <= num_slots[row], "request row ", row,
           ": the draft model has K/V of ", row_states_[row].num_tokens, " tokens, the row has ",
           num_slots[row]);
  ensure(page_states_.front() == PageState::kNone, "the padding page has K/V of a draft model");
}

}  // namespace attend
