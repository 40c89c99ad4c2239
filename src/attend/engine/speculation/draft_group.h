// DraftGroup: the cache group of a draft model. It records for which tokens of rows and pages the draft model
// has K/V.
#pragma once

#include <vector>

#include "attend/kv/cache_group.h"

namespace attend {

// The draft model stores its K/V at the target's token slots, in a KV pool of its own. It computes them later
// than the target or not at all: a new chunk of a prompt, an accepted token that it did not predict, and a
// cached page that was computed without it have none. So each row has a number of first tokens with K/V. K/V
// depend only on tokens, so a page that is complete for one row is complete for all rows that share it.
//
// The group allocates nothing and never shortens a cached prefix.
class DraftGroup final : public CacheGroup {
 public:
  // `num_pages`: of the KV pool, including the padding page. `rows` must outlive this object.
  DraftGroup(ReqToTokenPool& rows, int page_size, int num_pages);

  // Returns the number of first tokens of the row that have K/V. Pages that other rows have completed count.
  int num_tokens(RequestRow row);
  // Sets the number of first tokens of the row that have K/V. The first `num_known` of them are the row's
  // final tokens, the others are drafts, which a rewind may remove.
  void set_num_tokens(RequestRow row, int num_tokens, int num_known);
  // Returns the page of a position.
  PageId find_page(RequestRow row, int position) const;
  int page_size() const { return page_size_; }
  int num_pages() const { return static_cast<int>(complete_.size()); }

  int match(View<const PageId> prefix) const override { return static_cast<int>(prefix.size()); }
  bool can_skip() const override { return true; }
  int grid() const override { return 1; }
  void begin(RequestRow row, int first_page, View<const PageId> pages, int num_found) override;
  std::optional<int> pages_to_evict(int) const override { return 0; }
  void grow(RequestRow, int, int, const NewTokens&) override {}
  void advance(RequestRow, int) override {}
  void rewind(RequestRow row, int num_before, int num_after) override;
  void snapshot(RequestRow row, int num_tokens) override;
  void replace(RequestRow row, int first_page, View<const PageId> from, View<const PageId> to) override;
  void release(RequestRow row, int num_tokens) override;
  void forget(View<const PageId> pages) override;
  void reset() override;
  void check(View<const CachedRow> rows) const override;

 private:
  int& count(RequestRow row) { return num_tokens_.at(static_cast<size_t>(row.value)); }
  bool is_complete(PageId page) const { return complete_[static_cast<size_t>(page.value)]; }
  // Marks the pages of positions [begin, end) that lie completely in [0, end).
  void mark_complete(RequestRow row, int begin, int end);

  ReqToTokenPool& rows_;
  int page_size_;
  std::vector<int> num_tokens_;  // by row
  std::vector<bool> complete_;   // by page: all of its tokens have K/V
  std::vector<TokenSlot> scratch_;
};

}  // namespace attend
