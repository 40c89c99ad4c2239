#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kv/cache_group.h"

namespace attend {
namespace {

class WindowGroup final : public CacheGroup, public PageData {
 public:
  WindowGroup(const ReqToTokenPool& rows, SwaSlots& slots, int window_left)
      : rows_(rows),
        slots_(slots),
        window_left_(window_left),
        first_referenced_(static_cast<size_t>(rows.num_rows())) {
    scratch_.reserve(static_cast<size_t>(rows.max_context_len() / slots.page_size()) + 1);
  }

  // Requires a window page for each page in the window of the query after the prefix.
  int match(View<const PageId> prefix) const override {
    return longest_resumable(*this, static_cast<int>(prefix.size()),
                             [&](int page) { return slots_.is_mapped(prefix[static_cast<size_t>(page)]); });
  }

  // A longer prefix would change the row's window.
  bool can_skip() const override { return false; }
  int grid() const override { return 1; }

  void begin(RequestRow row, int, View<const PageId> pages, int) override {
    const auto num_pages = static_cast<int>(pages.size());
    const int first = first_needed(num_pages);
    slots_.hold(pages.subspan(static_cast<size_t>(first)));
    first_held(row) = first;
  }

  std::optional<int> pages_to_evict(int num_new_pages) const override {
    if (num_new_pages > slots_.num_available_pages()) return std::nullopt;
    return 0;
  }

  void grow(RequestRow row, int num_before, int num_after, const NewTokens&) override {
    const auto added =
        rows_.row(row).subspan(static_cast<size_t>(num_before), static_cast<size_t>(num_after - num_before));
    ensure(slots_.map(added), "too few window pages, although pages_to_evict() was 0");
  }

  void advance(RequestRow row, int num_computed) override {
    drop_before(row, first_page_in_window(num_computed));
  }

  void rewind(RequestRow row, int num_before, int num_after) override {
    slots_.drop(
        page_ids(row, ceil_div(num_after, slots_.page_size()), ceil_div(num_before, slots_.page_size())));
  }

  void snapshot(RequestRow, int) override {}  // unused window pages stay valid until they are reused

  void replace(RequestRow row, int first_page, View<const PageId> from, View<const PageId> to) override {
    const auto first_replaced = static_cast<size_t>(std::max(0, first_held(row) - first_page));
    for (size_t i = first_replaced; i < from.size(); ++i) slots_.replace(from[i], to[i]);
  }

  void release(RequestRow row, int num_tokens) override {
    drop_before(row, ceil_div(num_tokens, slots_.page_size()));
    first_held(row) = 0;
  }

  void forget(View<const PageId> pages) override { slots_.forget(pages); }

  void reset() override {
    slots_.reset();
    std::ranges::fill(first_referenced_, 0);
  }

  PageData* page_data() override { return this; }
  PageDataKind kind() const override { return PageDataKind::kWindow; }
  int first_needed(int num_pages) const override {
    return std::min(num_pages, first_page_in_window(num_pages * slots_.page_size()));
  }
  std::optional<int> find(PageId page) const override {
    if (!slots_.is_mapped(page)) return std::nullopt;
    return slots_.window_page(page);
  }
  // The window page is unused, like that of a cached page that has left all windows.
  std::optional<int> restore(PageId page, int) override {
    if (!slots_.restore(page)) return std::nullopt;
    return slots_.window_page(page);
  }
  void set_before_drop(BeforeDrop before_drop) override { slots_.set_before_reuse(std::move(before_drop)); }

  void check(View<const CachedRow> rows) const override {
    slots_.check_conservation();
    const int page_size = slots_.page_size();
    for (const CachedRow& each : rows)
      for (int page = first_held(each.row); page < ceil_div(each.num_tokens, page_size); ++page)
        ensure(slots_.is_mapped(find_page(each.row, page)), "request row ", each.row, ": page ", page,
               " has no window page, though its next query sees it");
  }

 private:
  int first_page_in_window(int num_computed) const {
    return std::max(0, num_computed - window_left_) / slots_.page_size();
  }
  int& first_held(RequestRow row) { return first_referenced_[static_cast<size_t>(row.value)]; }
  int first_held(RequestRow row) const { return first_referenced_[static_cast<size_t>(row.value)]; }

  PageId find_page(RequestRow row, int page) const {
    const int page_size = slots_.page_size();
    return PageId(rows_.row(row)[static_cast<size_t>(page * page_size)].value / page_size);
  }
  // Pages [first, end) of a row. Valid until the next call.
  View<const PageId> page_ids(RequestRow row, int first, int end) {
    scratch_.clear();
    for (int page = first; page < end; ++page) scratch_.push_back(find_page(row, page));
    return scratch_;
  }

  // Drops pages [first held, end).
  void drop_before(RequestRow row, int end) {
    int& first = first_held(row);
    slots_.drop(page_ids(row, first, end));
    first = std::max(first, end);
  }

  const ReqToTokenPool& rows_;
  SwaSlots& slots_;
  int window_left_;
  std::vector<int> first_referenced_;  // by row: page
  std::vector<PageId> scratch_;
};

}  // namespace

std::unique_ptr<CacheGroup> make_window_group(const ReqToTokenPool& rows, SwaSlots& window_slots,
                                              int window_left) {
  return std::make_unique<WindowGroup>(rows, window_slots, window_left);
}

}  // namespace attend
