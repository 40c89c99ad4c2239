// RequestMemory: what requests hold of a model's caches: rows, token slots, the rows' state in other cache
// groups, and locks of shared prefixes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "attend/engine/request.h"
#include "attend/engine/schedule/next_token_keys.h"
#include "attend/kv/allocator.h"
#include "attend/kv/cache_group.h"
#include "attend/kv/prefix_cache.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/kv/tier/cache_tiers.h"

namespace attend {

// Cached pages that a request can start after, locked for the lifetime of this object.
struct CachedPrefix {
  PrefixLock lock;
  std::vector<PageId> pages;
  int num_found = 0;                 // number of cached pages, including those that some group cannot restore
  std::optional<int> miss_position;  // see Request::cache_miss_position
  LowerPrefix lower;                 // continues the prefix in tiers below the pool; admit() restores it

  // The disk is being searched: the request should wait.
  bool loading() const { return lower.loading; }
};

// Each page has one owner: the free list, the prefix cache, or one request. A request's row starts with pages
// of the cache, which the request has locked, and continues with its own pages. Full pages move to the cache
// at the end of each chunk of a prompt and at the end of the request. Cached pages without a lock count as
// available: they are evicted when slots run out.
//
// Pages that are evicted may stay in tiers below the pool (use_tiers()). A request that continues a prefix
// there receives pages of the pool, to which the data are copied before the request's first step.
//
// Each group of the model's layers does its own accounting of rows and pages (kv/cache_group.h), and each
// call is forwarded to all groups. A request starts after the longest cached prefix that all groups can
// restore.
class RequestMemory {
 public:
  // If `caching` is not given, nothing is cached. `max_kv_tokens` limits the sum of all requests' slots;
  // shared slots count once for each request. The first of `groups` allocates from `slots`.
  // `has_next_token_keys`: some K/V depend on the next token (NextTokenKeys).
  RequestMemory(int64_t max_kv_tokens, ReqToTokenPool& rows, SlotAllocator& slots,
                std::optional<EvictionPolicy> caching, std::vector<std::unique_ptr<CacheGroup>> groups,
                bool has_next_token_keys = false);
  // With CacheTiers::stores_at_exit(), evicts all unlocked pages to the tiers below the pool.
  ~RequestMemory();

  // Sets the tiers below the pool; null: none. Requires a prefix cache, and that it is empty.
  void use_tiers(std::unique_ptr<CacheTiers> tiers);
  // Data of the groups' cached pages, for the constructor of CacheTiers.
  std::vector<PageData*> page_data() const;

  // Returns the longest cached prefix, without the request's last token: this token is computed for its
  // logits.
  CachedPrefix find_prefix(Request& request);
  // Waits until the tiers below the pool have searched the request's prefix, for `timeout` at most. Returns
  // false if they do not search it.
  bool wait_for_prefix(const Request& request, std::chrono::microseconds timeout) const;
  // Allocates a row that starts with the prefix. Queues copies of its pages in tiers below the pool: the
  // request can run when is_loaded() returns true. Returns false and changes nothing if no row is free.
  [[nodiscard]] bool admit(Request& request, CachedPrefix prefix);
  // Returns whether all cached pages of the request's row are copied to the pool.
  bool is_loaded(const Request& request) const;
  // Starts queued copies from and to tiers below the pool. Call it before each step is launched, after all
  // calls that allocate its slots.
  void start_copies();
  // Waits until such copies end, for `timeout` at most. Returns false if there was none.
  bool wait_for_copies(std::chrono::microseconds timeout) const;
  // Extends the row, between two chunks, by cached pages that other requests have computed since the last
  // match.
  void match_more(Request& request);
  // Returns Request::cache_miss_position of a request with `num_matched` tokens in the locked prefix.
  std::optional<int> miss_position(const PrefixLock& lock, const Request& request, int num_matched) const;
  // Allocates slots for the first `num_tokens` tokens. Returns false and changes nothing if this exceeds the
  // pool or max_kv_tokens.
  [[nodiscard]] bool grow(Request& request, int num_tokens);
  // Like grow(), for tokens that are not computed: no step stores them, so copies of the row on a device
  // receive their slots like those of cached tokens. They count as computed.
  [[nodiscard]] bool skip(Request& request, int num_tokens);
  // Notifies the groups that the first `num_computed` tokens are computed, or will be by the steps in flight.
  // Required after each step that computed tokens of the request.
  void advance(const Request& request);
  // Frees the slots after the first `num_tokens`: those of rejected drafts, after advance(), or those of
  // unused draft slots, before the step is launched.
  void rewind(Request& request, int num_tokens);
  // Inserts the full pages of the first `num_tokens` tokens into the cache; the current step will compute
  // them.
  void share_before_compute(Request& request, int num_tokens);
  // Inserts the full pages of all computed tokens into the cache.
  void checkpoint(Request& request);
  // Frees the row and its pages. Pages that were not inserted into the cache are lost.
  void release(Request& request);

  // Starts a step: the pages that the previous step inserted before it computed them are computed now.
  void begin_step();
  // Returns true if a request of this step reads keys that another request computes in the same step.
  bool reads_pending_keys() const { return !rows_reading_pending_.empty(); }

  // Evicts all cached pages that no request has locked, without keeping them in tiers below the pool.
  void drop_unlocked();
  // Calls drop_unlocked(), and removes all pages of tiers below the pool.
  void flush();
  // Frees every row and page, in any state, including an inconsistent one. The caller resets the requests.
  void reset();
  // Throws Error(kInternal) unless free, cached and private pages add up to all pages. Compares counts only.
  void check_counts() const;
  // Throws Error(kInternal) unless every page has one owner; `requests` are all requests with a row. Reads
  // all tables, so only tests and debug builds call it.
  void check(View<Request* const> requests) const;

  bool caches() const { return cache_.has_value(); }
  int page_size() const { return slots_.page_size(); }
  // Returns the least common multiple of all groups' grids, including the page size: chunks of prompts end at
  // its multiples.
  int chunk_grid() const { return chunk_grid_; }
  int num_total_slots() const { return slots_.num_total_slots(); }
  int64_t max_kv_tokens() const { return max_kv_tokens_; }
  // Returns the maximum number of tokens of one request: the minimum of a row, the pool and the keys of a
  // step.
  int longest_request() const;
  // Returns the number of pages that are free, or cached and not locked.
  int num_available_pages() const;
  int num_cached_pages() const { return cache_ ? cache_->num_pages() : 0; }
  int num_evictable_pages() const { return cache_ ? cache_->num_evictable_pages() : 0; }
  // Zeros without tiers below the pool.
  CacheTierStats tier_stats() const { return tiers_ ? tiers_->stats() : CacheTierStats(); }
  // Returns the number of pages that were evicted so far.
  int64_t num_evicted_pages() const { return num_evicted_pages_; }
  int num_free_rows() const { return rows_.num_free(); }
  // Returns the number of slots of all requests; shared slots count once for each request.
  int64_t num_held_tokens() const { return num_held_tokens_; }
  // Returns the sum of Request::num_cached_tokens over all requests so far.
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  // Returns the length of the request's cached prefix, in tokens.
  int num_matched_tokens(const Request& request) const;

 private:
  PrefixLock& prefix_lock(const Request& request) { return locks_[static_cast<size_t>(request.row.value)]; }
  const PrefixLock& prefix_lock(const Request& request) const {
    return locks_[static_cast<size_t>(request.row.value)];
  }
  int num_pages(const Request& request) const;
  // Returns the keys of the request's tokens, of which the last one may be missing. Valid until the next
  // call.
  View<const int32_t> keys(const Request& request) const;
  // Returns the number of pages of a cached prefix, from the first on, that all groups can restore.
  int num_restorable(View<const PageId> prefix) const;
  // Continues the row after `pages`, the first of which is page `first_page` of the row; `num_found` pages
  // are cached.
  void begin_after(Request& request, int first_page, View<const PageId> pages, int num_found);
  // Cached pages of the request's row may be in the process of being copied to the pool: see is_loaded().
  void wait_for_loads(const Request& request, View<const PageId> pages);
  // Frees pages that neither a request nor the cache owns.
  void free_pages(View<const PageId> pages);
  // Evicts at most `num_pages` cached pages without a lock; returns the number of evicted pages. `demotes`:
  // tiers below the pool may keep them.
  int evict(int num_pages, bool demotes = true);
  // Returns the hashes of the first pages of these keys of the request.
  View<const PageHash> page_hashes(Request& request, View<const int32_t> keys) const;
  // Adds pages of the pool to the prefix cache and restores the parts of prefix.lower. Afterwards the prefix
  // is the longest one that all groups can restore.
  void restore(Request& request, CachedPrefix& prefix);
  // Full pages that the request owns, and their keys.
  struct PrivatePages {
    View<const int32_t> keys;
    View<PageId> pages;
  };
  // Returns those of the first `num_tokens` tokens.
  PrivatePages private_pages(const Request& request, int num_tokens);
  // Returns the pages [first, end) of a row. The view is valid until the next call.
  View<PageId> page_ids(const Request& request, int first, int end);

  int64_t max_kv_tokens_;
  ReqToTokenPool& rows_;
  SlotAllocator& slots_;
  std::optional<PrefixCache> cache_;
  mutable std::optional<NextTokenKeys> next_token_keys_;
  std::vector<std::unique_ptr<CacheGroup>> groups_;
  std::unique_ptr<CacheTiers> tiers_;  // null: evicted pages are lost
  int chunk_grid_ = 1;
  std::vector<PrefixLock> locks_;     // by row
  std::vector<int> num_named_pages_;  // by row: first pages that the tiers know, or should not
  std::vector<int64_t> loads_;        // by row: CacheTiers::loading() of its cached pages
  int num_private_pages_ = 0;         // of all requests, without the cache's
  int64_t num_held_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_evicted_pages_ = 0;
  std::unordered_set<PageId> pending_shared_pages_;  // inserted by share_before_compute() in this step
  std::vector<RequestRow> rows_reading_pending_;
  std::vector<PageId> page_scratch_, freed_pages_;
  std::vector<TokenSlot> slot_scratch_;
};

}  // namespace attend
