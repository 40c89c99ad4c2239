#include "attend/engine/schedule/request_memory.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <ranges>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/base/math.h"

namespace attend {

RequestMemory::RequestMemory(int64_t max_kv_tokens, ReqToTokenPool& rows, SlotAllocator& slots,
                             std::optional<EvictionPolicy> caching,
                             std::vector<std::unique_ptr<CacheGroup>> groups, bool has_next_token_keys)
    : max_kv_tokens_(max_kv_tokens), rows_(rows), slots_(slots), groups_(std::move(groups)) {
  if (caching) cache_.emplace(slots.page_size(), *caching);
  if (has_next_token_keys) next_token_keys_.emplace(slots.page_size());
  for (const auto& group : groups_) chunk_grid_ = std::lcm(chunk_grid_, group->grid());
  locks_.resize(static_cast<size_t>(rows.num_rows()));
  num_named_pages_.resize(locks_.size());
  loads_.resize(locks_.size());
  page_scratch_.reserve(static_cast<size_t>(rows.max_context_len() / slots.page_size()) + 1);
}

RequestMemory::~RequestMemory() {
  if (!tiers_ || !tiers_->stores_at_exit()) return;
  try {
    // Parts, so that cells of the host tier become free again.
    const int num_pages = std::max(1, static_cast<int>(tiers_->stats().num_host_pages / 2));
    while (num_evictable_pages() > 0) {
      evict(std::min(num_pages, num_evictable_pages()));
      tiers_->complete();
    }
  } catch (const std::exception& error) {
    try_log_warning("storing cached pages at exit: ", error.what());
  }
}

void RequestMemory::use_tiers(std::unique_ptr<CacheTiers> tiers) {
  ensure(cache_.has_value() && !next_token_keys_, "tiers below a pool without a prefix cache of tokens");
  tiers_ = std::move(tiers);
}

std::vector<PageData*> RequestMemory::page_data() const {
  std::vector<PageData*> data;
  for (const auto& group : groups_)
    if (PageData* const of_group = group->page_data()) data.push_back(of_group);
  return data;
}

CachedPrefix RequestMemory::find_prefix(Request& request) {
  CachedPrefix prefix;
  if (!cache_) return prefix;
  const auto keys = this->keys(request).first(static_cast<size_t>(request.num_reusable()));
  prefix.lock = cache_->open(request.cache_salt);
  prefix.pages.resize(keys.size() / static_cast<size_t>(page_size()));
  prefix.num_found = cache_->match(prefix.lock, keys, prefix.pages);
  prefix.miss_position = miss_position(prefix.lock, request, prefix.num_found * page_size());
  const auto found = View<const PageId>(prefix.pages).first(static_cast<size_t>(prefix.num_found));
  const int num_in_pool = prefix.num_found;
  int num_resumable = num_restorable(found);
  if (tiers_) {
    const View<const PageHash> hashes = page_hashes(request, keys);
    prefix.lower = tiers_->find(hashes, found, num_resumable, *request.tier_search);
    if (prefix.lower.num_pages > num_resumable) {
      num_resumable = std::min(prefix.lower.num_pages, num_in_pool);
      if (prefix.lower.num_pages > num_in_pool) prefix.miss_position = std::nullopt;
    }
    prefix.num_found = std::max(prefix.num_found, prefix.lower.num_found);
  }
  const auto num_locked = static_cast<size_t>(num_resumable);
  prefix.pages.resize(num_locked);
  if (num_resumable < num_in_pool) {
    prefix.lock = cache_->open(request.cache_salt);
    cache_->match(prefix.lock, keys.first(num_locked * static_cast<size_t>(page_size())), prefix.pages);
  }
  return prefix;
}

bool RequestMemory::wait_for_prefix(const Request& request, std::chrono::microseconds timeout) const {
  if (!tiers_ || !request.tier_search || !request.tier_search->waits) return false;
  tiers_->wait(*request.tier_search, timeout);
  return true;
}

View<const PageHash> RequestMemory::page_hashes(Request& request, View<const int32_t> keys) const {
  if (!request.tier_search) request.tier_search = std::make_shared<TierSearch>();
  TierSearch& search = *request.tier_search;
  if (search.salt != request.cache_salt) search = {.salt = request.cache_salt, .hashes = {}, .disk = nullptr};
  const auto page = static_cast<size_t>(page_size());
  const size_t num_pages = keys.size() / page;
  for (size_t i = search.hashes.size(); i < num_pages; ++i)
    search.hashes.push_back(hash_page(i > 0 ? search.hashes.back() : tiers_->root(request.cache_salt),
                                      keys.subspan(i * page, page)));
  return View<const PageHash>(search.hashes).first(num_pages);
}

void RequestMemory::restore(Request& request, CachedPrefix& prefix) {
  const int num_pages = prefix.lower.num_pages;
  const auto num_before = prefix.pages.size();
  const auto num_new = static_cast<size_t>(num_pages) - num_before;
  const auto page = static_cast<size_t>(page_size());
  const auto keys = this->keys(request).first(static_cast<size_t>(num_pages) * page);
  const int num_to_evict = static_cast<int>(num_new) - slots_.num_free_pages();
  if (num_to_evict <= num_evictable_pages()) {
    if (num_to_evict > 0) num_evicted_pages_ += evict(num_to_evict);
    std::vector<PageId> added(num_new);
    ensure(slots_.alloc_pages(added), "too few free pages to restore a prefix, although pages were evicted");
    freed_pages_.clear();
    cache_->insert(prefix.lock, keys.subspan(num_before * page), added, request.priority, freed_pages_);
    ensure(freed_pages_.empty(), "a page to restore is in the prefix cache already");
    prefix.pages.insert(prefix.pages.end(), added.begin(), added.end());
    tiers_->restore(prefix.lower, page_hashes(request, keys), prefix.pages);
  }
  // The pool may have too little storage for some data.
  const auto num_resumable = static_cast<size_t>(num_restorable(prefix.pages));
  if (num_resumable == prefix.pages.size()) return;
  prefix.pages.resize(num_resumable);
  prefix.lock = cache_->open(request.cache_salt);
  cache_->match(prefix.lock, keys.first(num_resumable * page), prefix.pages);
}

int RequestMemory::num_restorable(View<const PageId> prefix) const {
  // Repeats until no group shortens the prefix: a group may be unable to restore the prefix that another one
  // shortened.
  int usable = static_cast<int>(prefix.size());
  for (int before = usable + 1; usable < before;) {
    before = usable;
    for (const auto& group : groups_) usable = group->match(prefix.first(static_cast<size_t>(usable)));
  }
  return usable;
}

bool RequestMemory::admit(Request& request, CachedPrefix prefix) {
  const auto row = rows_.allocate();
  if (!row) return false;
  request.row = *row;
  const auto num_in_pool = static_cast<int>(prefix.pages.size());
  if (prefix.lower.num_pages > 0) restore(request, prefix);
  prefix_lock(request) = std::move(prefix.lock);
  // Pages of the prefix are known to the tiers, unless a step has still to compute them.
  num_named_pages_[static_cast<size_t>(row->value)] = static_cast<int>(prefix.pages.size());
  // A request that was preempted would find its own pages.
  if (request.num_ever_computed == 0) request.cache_miss_position = prefix.miss_position;
  const bool is_first = request.num_ever_computed == 0;
  begin_after(request, 0, prefix.pages, prefix.num_found);
  if (request.tier_search) request.tier_search->disk = nullptr;
  if (!is_first) return true;
  for (const LowerPrefix::Part& part : prefix.lower.parts)
    if (part.kind == PageDataKind::kTokens && part.page >= num_in_pool &&
        part.page < std::ssize(prefix.pages))
      (part.from_disk ? request.num_disk_cached_tokens : request.num_host_cached_tokens) += page_size();
  return true;
}

bool RequestMemory::is_loaded(const Request& request) const {
  const int64_t loads = loads_[static_cast<size_t>(request.row.value)];
  return loads == 0 || tiers_->num_loaded() >= loads;
}

void RequestMemory::wait_for_loads(const Request& request, View<const PageId> pages) {
  if (!tiers_) return;
  int64_t& loads = loads_[static_cast<size_t>(request.row.value)];
  loads = std::max(loads, tiers_->loading(pages));
}

void RequestMemory::start_copies() {
  if (tiers_) tiers_->start_copies();
}

bool RequestMemory::wait_for_copies(std::chrono::microseconds timeout) const {
  return tiers_ && tiers_->wait_for_copies(timeout);
}

void RequestMemory::match_more(Request& request) {
  const int first_page = request.num_computed / page_size();
  if (!std::ranges::all_of(groups_, [](const auto& group) { return group->can_skip(); })) return;
  if (!cache_ || request.num_slots != request.num_computed || request.num_computed % page_size() != 0 ||
      prefix_lock(request).num_pages() != first_page)
    return;
  if (request.num_reusable() <= request.num_computed) return;
  const auto computed = static_cast<size_t>(request.num_computed);
  const auto keys =
      this->keys(request).subspan(computed, static_cast<size_t>(request.num_reusable()) - computed);
  if (num_held_tokens_ + static_cast<int64_t>(keys.size()) > max_kv_tokens_) return;
  page_scratch_.resize(keys.size() / static_cast<size_t>(page_size()));
  const int num_found = cache_->match(prefix_lock(request), keys, page_scratch_);
  if (num_found == 0) return;
  if (request.num_output() == 0)
    request.cache_miss_position =
        miss_position(prefix_lock(request), request, request.num_computed + num_found * page_size());
  begin_after(request, first_page, View<const PageId>(page_scratch_).first(static_cast<size_t>(num_found)),
              num_found);
}

std::optional<int> RequestMemory::miss_position(const PrefixLock& lock, const Request& request,
                                                int num_matched) const {
  const auto keys = this->keys(request).first(static_cast<size_t>(request.num_reusable()));
  const auto num_shared =
      cache_->num_shared_in_next_page(lock, keys.subspan(static_cast<size_t>(num_matched)));
  if (!num_shared) return std::nullopt;
  return num_matched + *num_shared;
}

void RequestMemory::begin_after(Request& request, int first_page, View<const PageId> pages, int num_found) {
  for (const auto& group : groups_) group->begin(request.row, first_page, pages, num_found);
  if (first_page == 0) loads_[static_cast<size_t>(request.row.value)] = 0;
  if (pages.empty()) return;
  wait_for_loads(request, pages);
  // Restored pages may follow pending ones.
  if (!pending_shared_pages_.empty() &&
      std::ranges::any_of(pages, [&](PageId page) { return pending_shared_pages_.contains(page); }))
    rows_reading_pending_.push_back(request.row);
  const int before = request.num_computed;
  request.num_slots = request.num_computed = (first_page + static_cast<int>(pages.size())) * page_size();
  num_held_tokens_ += request.num_computed - before;
  // Tokens that the request itself computed before it was preempted do not count as cached.
  const int num_cached = std::max(0, request.num_computed - std::max(before, request.num_ever_computed));
  request.num_cached_tokens += num_cached;
  num_cached_tokens_ += num_cached;
  request.num_ever_computed = std::max(request.num_ever_computed, request.num_computed);
}

bool RequestMemory::grow(Request& request, int num_tokens) {
  const int before = request.num_slots, after = num_tokens;
  if (after <= before) return true;
  if (num_held_tokens_ + after - before > max_kv_tokens_) return false;
  const int new_pages = ceil_div(after, page_size()) - num_pages(request);
  int num_to_evict = 0;
  for (const auto& group : groups_) {
    const std::optional<int> needed = group->pages_to_evict(new_pages);
    if (!needed) return false;
    num_to_evict = std::max(num_to_evict, *needed);
  }
  if (num_to_evict > num_evictable_pages()) return false;
  if (num_to_evict > 0) num_evicted_pages_ += evict(num_to_evict);
  const NewTokens tokens{.is_prompt = !request.decoding(), .prompt_end = request.num_tokens()};
  for (const auto& group : groups_) group->grow(request.row, before, after, tokens);
  request.num_slots = after;
  num_held_tokens_ += after - before;
  num_private_pages_ += new_pages;
  return true;
}

bool RequestMemory::skip(Request& request, int num_tokens) {
  const int before = request.num_slots;
  if (!grow(request, num_tokens)) return false;
  const View<const TokenSlot> slots =
      rows_.row(request.row)
          .subspan(static_cast<size_t>(before), static_cast<size_t>(request.num_slots - before));
  slot_scratch_.assign(slots.begin(), slots.end());
  rows_.write_shared(request.row, before, slot_scratch_);
  request.num_computed = num_tokens;
  advance(request);
  return true;
}

void RequestMemory::advance(const Request& request) {
  for (const auto& group : groups_) group->advance(request.row, request.num_computed);
}

void RequestMemory::rewind(Request& request, int num_tokens) {
  const int first_page = ceil_div(num_tokens, page_size()), end_page = num_pages(request);
  const View<const PageId> pages = page_ids(request, first_page, end_page);
  for (const auto& group : groups_ | std::views::reverse)
    group->rewind(request.row, request.num_slots, num_tokens);
  free_pages(pages);
  num_held_tokens_ -= request.num_slots - num_tokens;
  num_private_pages_ -= end_page - first_page;
  request.num_slots = num_tokens;
}

void RequestMemory::share_before_compute(Request& request, int num_tokens) {
  if (!cache_) return;
  const PrivatePages own = private_pages(request, num_tokens);
  if (!cache_->insert_pending(prefix_lock(request), own.keys, own.pages, request.priority)) return;
  num_private_pages_ -= static_cast<int>(own.pages.size());
  pending_shared_pages_.insert(own.pages.begin(), own.pages.end());
}

void RequestMemory::checkpoint(Request& request) {
  request.num_ever_computed = std::max(request.num_ever_computed, request.num_computed);
  if (!cache_) return;
  PrefixLock& lock = prefix_lock(request);
  const int first_page = lock.num_pages();
  const PrivatePages own = private_pages(request, request.num_computed);
  if (!own.pages.empty()) {
    freed_pages_.clear();
    cache_->insert(lock, own.keys, own.pages, request.priority, freed_pages_);
    num_private_pages_ -= static_cast<int>(own.pages.size());
    // The row refers to the cached pages before the duplicates are freed.
    for (const auto& group : groups_)
      group->replace(request.row, first_page, freed_pages_, own.pages.first(freed_pages_.size()));
    if (!freed_pages_.empty()) wait_for_loads(request, own.pages.first(freed_pages_.size()));
    free_pages(freed_pages_);
  }
  // Also saves snapshots for pages from share_before_compute(): they are computed now.
  for (const auto& group : groups_) group->snapshot(request.row, request.num_computed);
  if (!tiers_) return;
  int& num_named = num_named_pages_[static_cast<size_t>(request.row.value)];
  const int num_cached = std::min(lock.num_pages(), request.num_computed / page_size());
  if (num_cached <= num_named) return;
  const auto computed = static_cast<size_t>(num_cached) * static_cast<size_t>(page_size());
  const View<const PageHash> hashes = page_hashes(request, this->keys(request).first(computed));
  tiers_->add(hashes, num_named, page_ids(request, num_named, num_cached));
  num_named = num_cached;
}

void RequestMemory::release(Request& request) {
  PrefixLock& lock = prefix_lock(request);
  const View<const PageId> own = page_ids(request, lock.num_pages(), num_pages(request));
  for (const auto& group : groups_ | std::views::reverse) group->release(request.row, request.num_slots);
  free_pages(own);
  lock.release();
  std::erase(rows_reading_pending_, request.row);
  rows_.free(request.row);
  num_private_pages_ -= static_cast<int>(own.size());
  num_held_tokens_ -= request.num_slots;
  request.num_ever_computed = std::max(request.num_ever_computed, request.num_computed);
  request.row = kPaddingRow;
  request.num_slots = request.num_computed = request.num_pending = 0;
}

void RequestMemory::begin_step() {
  pending_shared_pages_.clear();
  rows_reading_pending_.clear();
  if (tiers_) tiers_->update();
}

void RequestMemory::drop_unlocked() {
  if (cache_) evict(cache_->num_evictable_pages(), false);
}

void RequestMemory::flush() {
  drop_unlocked();
  if (tiers_) tiers_->clear();
}

int RequestMemory::evict(int num_pages, bool demotes) {
  freed_pages_.clear();
  cache_->evict(num_pages, freed_pages_);
  if (tiers_) tiers_->remove(freed_pages_, demotes);
  free_pages(freed_pages_);
  return static_cast<int>(freed_pages_.size());
}

void RequestMemory::free_pages(View<const PageId> pages) {
  for (const auto& group : groups_ | std::views::reverse) group->forget(pages);
}

void RequestMemory::reset() {
  if (cache_) cache_->drop();
  if (tiers_) tiers_->reset();
  for (PrefixLock& lock : locks_) lock.release();
  for (const auto& group : groups_) group->reset();
  rows_.reset();
  num_private_pages_ = 0;
  num_held_tokens_ = 0;
  begin_step();
}

void RequestMemory::check_counts() const {
  const int num_total = slots_.num_total_slots() / page_size();
  ensure(slots_.num_free_pages() + num_cached_pages() + num_private_pages_ == num_total,
         "KV pool: ", slots_.num_free_pages(), " free, ", num_cached_pages(), " cached and ",
         num_private_pages_, " private pages; expected a sum of ", num_total);
}

void RequestMemory::check(View<Request* const> requests) const {
  check_counts();
  std::vector<CachedRow> held_rows;
  for (const Request* request : requests)
    held_rows.push_back({request->row, request->num_slots, request->num_computed});
  for (const auto& group : groups_) group->check(held_rows);
  std::unordered_set<PageId> owned;
  if (cache_) {
    cache_->check();
    for (const PageId page : cache_->pages()) owned.insert(page);
  }
  const std::unordered_set<PageId> cached = owned;
  if (tiers_) tiers_->check([&](PageId page) { return cached.contains(page); });
  int64_t num_held = 0;
  for (const Request* request : requests) {
    num_held += request->num_slots;
    const View<const TokenSlot> row = rows_.row(request->row);
    for (int page = 0; page < num_pages(*request); ++page) {
      const PageId id(row[static_cast<size_t>(page * page_size())].value / page_size());
      if (page < prefix_lock(*request).num_pages())
        ensure(cached.contains(id), "request ", request->id, ": page ", page, " of its row has id ", id,
               ", expected a page of the prefix cache");
      else
        ensure(owned.insert(id).second, "request ", request->id, ": page ", id,
               " of its row has a second owner");
    }
  }
  ensure(num_held == num_held_tokens_, "requests hold ", num_held, " tokens, expected ", num_held_tokens_);
  ensure(static_cast<int>(owned.size()) * page_size() == slots_.num_used_slots(), owned.size(),
         " pages have an owner, expected ", slots_.num_used_slots() / page_size(), " pages in use");
}

int RequestMemory::num_available_pages() const { return slots_.num_free_pages() + num_evictable_pages(); }

int RequestMemory::longest_request() const {
  return static_cast<int>(
      std::min<int64_t>(std::min(rows_.max_context_len(), num_total_slots()), max_kv_tokens_));
}

int RequestMemory::num_matched_tokens(const Request& request) const {
  if (!cache_) return 0;
  return cache_->num_cached_tokens(request.cache_salt,
                                   keys(request).first(static_cast<size_t>(request.num_reusable())));
}

View<const int32_t> RequestMemory::keys(const Request& request) const {
  return next_token_keys_ ? next_token_keys_->keys(request) : prefix_keys(request);
}

int RequestMemory::num_pages(const Request& request) const {
  return ceil_div(request.num_slots, page_size());
}

RequestMemory::PrivatePages RequestMemory::private_pages(const Request& request, int num_tokens) {
  const int first = prefix_lock(request).num_pages();
  const View<const int32_t> keys = this->keys(request);
  const int count = std::max(0, std::min(num_tokens, static_cast<int>(keys.size())) / page_size() - first);
  const auto first_slot = static_cast<size_t>(first) * static_cast<size_t>(page_size());
  const auto num_slots = static_cast<size_t>(count) * static_cast<size_t>(page_size());
  return {keys.subspan(first_slot, num_slots), page_ids(request, first, first + count)};
}

View<PageId> RequestMemory::page_ids(const Request& request, int first, int end) {
  const View<const TokenSlot> row = rows_.row(request.row);
  page_scratch_.clear();
  for (int page = first; page < end; ++page)
    page_scratch_.emplace_back(row[static_cast<size_t>(page * page_size())].value / page_size());
  return page_scratch_;
}

}  // namespace attend
