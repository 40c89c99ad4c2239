// DraftGroup: the cache group of a draft model. It records for which tokens of rows and pages the draft model
// has K/V.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/kv/cache_group.h"

namespace attend {

// The draft model stores its K/V at the target's token slots, in a KV pool of its own. It computes them later
// than the target or not at all: a new chunk of a prompt, an accepted token that it did not predict, and a
// cached page that was computed without it have none. So each row has a number of first tokens with K/V. K/V
// depend only on tokens, so a page that is complete for one row is complete for all rows that share it.
//
// Draft heads read hidden states of the target, which only the step that computed a token returns. They can
// compute no K/V later, so a row begins only after pages that are complete, or that are expected to be: those
// of a running row that has missed no token. A row that missed one has no drafts until its end.
//
// The group allocates nothing.
class DraftGroup final : public CacheGroup {
 public:
  // `num_pages`: of the KV pool, including the padding page. `rows` must outlive this object.
  DraftGroup(ReqToTokenPool& rows, int page_size, int num_pages, bool is_head = false);

  // Returns the number of first tokens of the row that have K/V. Pages that other rows have completed count.
  int num_tokens(RequestRow row);
  // Sets the number of first tokens of the row that have K/V. The first `num_known` of them are the row's
  // final tokens, the others are drafts, which a rewind may remove.
  void set_num_tokens(RequestRow row, int num_tokens, int num_known);
  // Draft heads: the row's next tokens cannot be computed any more.
  void set_lost(RequestRow row);
  // Returns the page of a position.
  PageId find_page(RequestRow row, int position) const;
  int page_size() const { return page_size_; }
  int num_pages() const { return static_cast<int>(page_states_.size()); }

  int match(View<const PageId> prefix) const override;
  // A row in use would have to be matched again.
  bool can_skip() const override { return !is_head_; }
  int grid() const override { return 1; }
  void begin(RequestRow row, int first_page, View<const PageId> pages, int num_found) override;
  std::optional<int> pages_to_evict(int) const override { return 0; }
  void grow(RequestRow row, int num_before, int num_after, const NewTokens&) override;
  void advance(RequestRow, int) override {}
  void rewind(RequestRow row, int num_before, int num_after) override;
  void snapshot(RequestRow row, int num_tokens) override;
  void replace(RequestRow row, int first_page, View<const PageId> from, View<const PageId> to) override;
  void release(RequestRow row, int num_tokens) override;
  void forget(View<const PageId> pages) override;
  void reset() override;
  void check(View<const CachedRow> rows) const override;

 private:
  struct RowState {
    int num_tokens = 0;      // with K/V
    int first_own_page = 0;  // pages before it are of the cached prefix
    bool lost = false;
  };
  enum class PageState : uint8_t { kNone, kExpected, kComplete };

  RowState& of(RequestRow row) { return row_states_.at(static_cast<size_t>(row.value)); }
  int& count(RequestRow row) { return of(row).num_tokens; }
  PageState& of(PageId page) { return page_states_[static_cast<size_t>(page.value)]; }
  bool is_complete(PageId page) const {
    return page_states_[static_cast<size_t>(page.value)] == PageState::kComplete;
  }
  // The row does not complete its own pages.
  void drop_expected(RequestRow row);
  // Marks the pages of positions [begin, end) that lie completely in [0, end).
  void mark_complete(RequestRow row, int begin, int end);

  ReqToTokenPool& rows_;
  int page_size_;
  bool is_head_;
  std::vector<RowState> row_states_;
  std::vector<PageState> page_states_;
  std::vector<TokenSlot> scratch_;
};

}  // namespace attend
