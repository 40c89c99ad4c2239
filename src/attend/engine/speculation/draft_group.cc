#include "attend/engine/speculation/draft_group.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

DraftGroup::DraftGroup(ReqToTokenPool& rows, int page_size, int num_pages)
    : rows_(rows),
      page_size_(page_size),
      num_tokens_(static_cast<size_t>(rows.num_rows())),
      complete_(static_cast<size_t>(num_pages)) {
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
    complete_[static_cast<size_t>(find_page(row, page * page_size_).value)] = true;
}

void DraftGroup::begin(RequestRow row, int first_page, View<const PageId> pages, int) {
  int& num = count(row);
  if (first_page == 0) num = 0;
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

void DraftGroup::release(RequestRow row, int) { count(row) = 0; }

void DraftGroup::forget(View<const PageId> pages) {
  for (const PageId page : pages) complete_[static_cast<size_t>(page.value)] = false;
}

void DraftGroup::reset() {
  std::ranges::fill(num_tokens_, 0);
  std::fill(complete_.begin(), complete_.end(), false);
}

void DraftGroup::check(View<const CachedRow> rows) const {
  std::vector<int> num_slots(num_tokens_.size());
  for (const CachedRow& each : rows) num_slots[static_cast<size_t>(each.row.value)] = each.num_tokens;
  for (size_t row = 0; row < num_slots.size(); ++row)
    ensure(num_tokens_[row] <= num_slots[row], "request row ", row, ": the draft model has K/V of ",
           num_tokens_[row], " tokens, the row has ", num_slots[row]);
  ensure(!complete_.front(), "the padding page has K/V of a draft model");
}

}  // namespace attend
