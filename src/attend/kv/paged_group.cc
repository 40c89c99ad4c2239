#include <algorithm>

#include "attend/base/error.h"
#include "attend/kv/cache_group.h"

namespace attend {
namespace {

// Its K/V is stored at the token slots, so a cached page needs no other data.
class PagedGroup final : public CacheGroup, public PageData {
 public:
  PagedGroup(ReqToTokenPool& rows, SlotAllocator& slots)
      : rows_(rows),
        slots_(slots),
        scratch_(static_cast<size_t>(rows.max_context_len() + slots.page_size())) {}

  int match(View<const PageId> prefix) const override { return static_cast<int>(prefix.size()); }
  bool can_skip() const override { return true; }
  // The prefix cache owns whole pages.
  int grid() const override { return slots_.page_size(); }
  void begin(RequestRow row, int first_page, View<const PageId> pages, int) override {
    write_pages(row, first_page, pages);
  }

  std::optional<int> pages_to_evict(int num_new_pages) const override {
    return std::max(0, num_new_pages - slots_.num_free_pages());
  }

  void grow(RequestRow row, int num_before, int num_after, const NewTokens&) override {
    const int32_t before = num_before, after = num_after;
    const TokenSlot last = before == 0 ? kNoSlot : rows_.row(row)[static_cast<size_t>(before) - 1];
    const auto added = View<TokenSlot>(scratch_).first(static_cast<size_t>(after - before));
    const bool done = after == before + 1 && before > 0
                          ? slots_.alloc_decode({&after, 1}, {&last, 1}, added)
                          : slots_.alloc_extend({&before, 1}, {&after, 1}, {&last, 1}, added);
    ensure(done, "too few free pages, although pages_to_evict() was 0");
    rows_.write(row, before, added);
  }

  void advance(RequestRow, int) override {}

  // The row keeps the rest of the last page and fills it again.
  void rewind(RequestRow row, int num_before, int num_after) override {
    const auto none = View<TokenSlot>(scratch_).first(static_cast<size_t>(num_before - num_after));
    std::ranges::fill(none, TokenSlot());
    rows_.write(row, num_after, none);
  }

  void snapshot(RequestRow, int) override {}
  void replace(RequestRow row, int first_page, View<const PageId>, View<const PageId> to) override {
    write_pages(row, first_page, to);
  }

  void release(RequestRow, int) override {}
  void forget(View<const PageId> pages) override { slots_.free_pages(pages); }
  void reset() override { slots_.reset(); }

  PageData* page_data() override { return this; }
  PageDataKind kind() const override { return PageDataKind::kTokens; }
  int first_needed(int) const override { return 0; }
  std::optional<int> find(PageId page) const override { return page.value; }
  // Every page has its data.
  std::optional<int> restore(PageId page, int) override { return page.value; }
  void set_before_drop(BeforeDrop) override {}  // data are dropped with their page

  void check(View<const CachedRow> rows) const override {
    slots_.check_conservation();
    for (const CachedRow& each : rows)
      for (const TokenSlot slot : rows_.row(each.row).first(static_cast<size_t>(each.num_tokens)))
        ensure(slot.value >= slots_.page_size(), "request row ", each.row, ": slot ", slot,
               " is of the padding page");
  }

 private:
  void write_pages(RequestRow row, int first_page, View<const PageId> pages) {
    if (pages.empty()) return;
    const int page_size = slots_.page_size();
    TokenSlot* slot = scratch_.data();
    for (const PageId page : pages)
      for (int32_t first = page.value * page_size, i = 0; i < page_size; ++i) *slot++ = TokenSlot(first + i);
    rows_.write_shared(row, first_page * page_size, {scratch_.data(), slot});
  }

  ReqToTokenPool& rows_;
  SlotAllocator& slots_;
  std::vector<TokenSlot> scratch_;
};

}  // namespace

std::unique_ptr<CacheGroup> make_paged_group(ReqToTokenPool& rows, SlotAllocator& slots) {
  return std::make_unique<PagedGroup>(rows, slots);
}

}  // namespace attend
