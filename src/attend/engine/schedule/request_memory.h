// RequestMemory: what requests hold of a model's cache: rows, token slots, what other cache groups have for
// their rows, and the prefixes that they share.
#pragma once

#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "attend/engine/request.h"
#include "attend/kv/allocator.h"
#include "attend/kv/cache_group.h"
#include "attend/kv/prefix_cache.h"
#include "attend/kv/req_to_token_pool.h"

namespace attend {

// The cached pages that a request could start behind, locked while this lives.
struct CachedPrefix {
  PrefixLock lock;
  std::vector<PageId> pages;
  int num_found = 0;  // number of cached pages, including those that some group cannot restore
};

// A page has one owner: the free list, the prefix cache, or one request. A request's row begins with pages of
// the cache, which it has locked, and goes on with its own; whole pages become the cache's at the end of each
// chunk of a prompt and when the request ends. Cached pages that nobody has locked are as good as free: they
// are evicted when slots are short.
//
// Each group of the model's layers keeps its own books of rows and pages (kv/cache_group.h), and each call
// goes to all groups: a request starts after the longest cached prefix that all of them can restore.
class RequestMemory {
 public:
  // Without a policy nothing is cached. `max_kv_tokens` bounds the slots of all requests together, those that
  // requests share counted for each. The first of `groups` allocates from `slots`.
  RequestMemory(int64_t max_kv_tokens, ReqToTokenPool& rows, const SlotAllocator& slots,
                std::optional<EvictionPolicy> caching, std::vector<std::unique_ptr<CacheGroup>> groups);

  // At most all tokens but the last: one has to be computed, for its logits.
  CachedPrefix find_prefix(const Request& request);
  // Takes a row that begins with the prefix. False, changing nothing, when no row is free.
  [[nodiscard]] bool admit(Request& request, CachedPrefix prefix);
  // Between chunks: what others have computed in the meantime of what comes next.
  void match_more(Request& request);
  // Slots for the first `num_tokens` tokens. False, changing nothing, when they are too many for the pool or
  // for max_kv_tokens.
  [[nodiscard]] bool grow(Request& request, int num_tokens);
  // `num_computed` of its tokens are computed, or will be by the steps in flight. After each step that
  // computed some of it.
  void advance(const Request& request);
  // Gives back the slots after the first `num_tokens`: those of rejected drafts, after advance(), or those of
  // drafts that were not made, before the step is launched.
  void rewind(Request& request, int num_tokens);
  // Lets others have the whole pages of the first `num_tokens` tokens, which the step in hand is going to
  // compute.
  void share_before_compute(Request& request, int num_tokens);
  // Lets others have the whole pages of what is computed.
  void checkpoint(Request& request);
  // Takes everything back. What was not shared is lost.
  void release(Request& request);

  // A step begins: what was shared ahead in the one before is computed.
  void begin_step();
  // Whether a request of this step reads what another one is computing in it.
  bool reads_pending_keys() const { return !rows_reading_pending_.empty(); }

  // Forgets all prefixes that no request has locked.
  void flush();
  // Forgets everything, in whatever state it is: every row and page is free. Requests must be told.
  void reset();
  // Throws Error(kInternal) unless the pages that are free, cached and requests' are all there are. Looks at
  // counts alone.
  void check_counts() const;
  // Throws Error(kInternal) unless every page has one owner, with these being all requests that have rows.
  // Reads everything: for tests and debug builds.
  void check(View<Request* const> requests) const;

  bool caches() const { return cache_.has_value(); }
  int page_size() const { return slots_.page_size(); }
  // Least common multiple of the grids of all groups, the page size among them: chunks of prompts end there.
  int chunk_grid() const { return chunk_grid_; }
  int num_total_slots() const { return slots_.num_total_slots(); }
  int64_t max_kv_tokens() const { return max_kv_tokens_; }
  // Tokens of one request that a row, the whole pool and a step could hold.
  int longest_request() const;
  // Free or cached and not locked.
  int num_available_pages() const;
  int num_cached_pages() const { return cache_ ? cache_->num_pages() : 0; }
  int num_evictable_pages() const { return cache_ ? cache_->num_evictable_pages() : 0; }
  // Cached pages that made room for others so far.
  int64_t num_evicted_pages() const { return num_evicted_pages_; }
  int num_free_rows() const { return rows_.num_free(); }
  // Slots of all requests; shared ones count for each.
  int64_t num_held_tokens() const { return num_held_tokens_; }
  // Of all requests so far: Request::num_cached_tokens.
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  // How many first tokens of a request's are cached.
  int num_matched_tokens(const Request& request) const;

 private:
  PrefixLock& prefix_lock(const Request& request) { return locks_[static_cast<size_t>(request.row.value)]; }
  const PrefixLock& prefix_lock(const Request& request) const {
    return locks_[static_cast<size_t>(request.row.value)];
  }
  int num_pages(const Request& request) const;
  // Number of first pages of a cached prefix that all groups can restore.
  int num_restorable(View<const PageId> prefix) const;
  // The row continues after `pages`, the first of which is its page `first_page`; `num_found` are cached.
  void begin_after(Request& request, int first_page, View<const PageId> pages, int num_found);
  // Frees pages that neither a request nor the cache has.
  void forget(View<const PageId> pages);
  // Evicts cached pages, at most all that nobody has locked; returns how many.
  int evict(int num_pages);
  // The request's own whole pages among its first `num_tokens` tokens, and the keys of these.
  struct PrivatePages {
    View<const int32_t> keys;
    View<PageId> pages;
  };
  PrivatePages private_pages(const Request& request, int num_tokens);
  // Pages [first, end) of a row, until the next call.
  View<PageId> page_ids(const Request& request, int first, int end);

  int64_t max_kv_tokens_;
  ReqToTokenPool& rows_;
  const SlotAllocator& slots_;
  std::optional<PrefixCache> cache_;
  std::vector<std::unique_ptr<CacheGroup>> groups_;
  int chunk_grid_ = 1;
  std::vector<PrefixLock> locks_;  // by row
  int num_private_pages_ = 0;      // of all requests, besides those that are the cache's
  int64_t num_held_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_evicted_pages_ = 0;
  std::unordered_set<PageId> pending_shared_pages_;  // that were shared ahead in this step
  std::vector<RequestRow> rows_reading_pending_;
  std::vector<PageId> page_scratch_, freed_pages_;
};

}  // namespace attend
