// Random requests over a prefix cache and a real allocator, compared with a model that stores every cached
// prefix by its tokens: matches, evictions, and the owner of every page.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "attend/kv/allocator.h"
#include "attend/kv/prefix_cache.h"

namespace attend {
namespace {

// Uniform, independent of RapidCheck's size.
int random_below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

// Identifies a cached page: its namespace and all tokens up to its end.
struct PrefixKey {
  std::string salt;
  std::vector<int32_t> tokens;
  auto operator<=>(const PrefixKey&) const = default;
};

// Request that has computed `tokens`; `pages` are their whole pages. The cache owns the first num_locked()
// pages, the request the others.
struct CacheUser {
  std::string salt;
  std::vector<int32_t> tokens;
  std::vector<PageId> pages;
  PrefixLock lock;

  size_t num_locked() const { return static_cast<size_t>(lock.num_pages()); }
};

class CacheSimulation {
 public:
  CacheSimulation(int page_size, int num_pages, EvictionPolicy policy)
      : page_size_(static_cast<size_t>(page_size)),
        allocator_(make_allocator(page_size, num_pages)),
        cache_(page_size, policy) {}

  void admit() {
    CacheUser user;
    user.salt = *rc::gen::element<std::string>("", "", "salt");
    user.tokens = random_tokens();
    const size_t num_pages = user.tokens.size() / page_size_;
    const size_t expected = num_cached_pages(user.salt, user.tokens);
    RC_ASSERT(cache_.num_cached_tokens(user.salt, user.tokens) == static_cast<int>(expected * page_size_));
    user.lock = cache_.open(user.salt);
    user.pages.resize(num_pages);
    const auto found = static_cast<size_t>(cache_.match(user.lock, user.tokens, user.pages));
    RC_ASSERT(found == expected && user.num_locked() == expected);
    for (size_t page = 0; page < found; ++page) RC_ASSERT(user.pages[page] == cached_.at(key(user, page)));
    user.pages.resize(found);
    if (!allocate_pages(user, num_pages)) return;  // releases its lock
    users_.push_back(std::move(user));
  }

  // Computes another chunk of a prompt, or an answer.
  void grow() {
    if (users_.empty()) return;
    CacheUser& user = any_user();
    const std::vector<int32_t> more = random_tokens();
    user.tokens.resize(user.tokens.size() / page_size_ * page_size_);
    user.tokens.insert(user.tokens.end(), more.begin(), more.end());
    if (!allocate_pages(user, user.tokens.size() / page_size_))
      user.tokens.resize(user.pages.size() * page_size_);
  }

  void insert() {
    if (!users_.empty()) insert(any_user());
  }

  void insert_pending() {
    if (users_.empty()) return;
    CacheUser& user = any_user();
    const size_t first = user.num_locked();
    const bool is_new = first < user.pages.size() && num_cached_pages(user.salt, user.tokens) <= first;
    RC_ASSERT(cache_.insert_pending(user.lock, own_tokens(user),
                                    View<const PageId>(user.pages).subspan(first), 0) == is_new);
    if (is_new)
      for (size_t page = first; page < user.pages.size(); ++page)
        cached_.emplace(key(user, page), user.pages[page]);
  }

  void end(bool inserted) {
    if (users_.empty()) return;
    CacheUser& user = any_user();
    if (inserted) insert(user);
    allocator_->free_pages(View<const PageId>(user.pages).subspan(user.num_locked()));
    std::swap(user, users_.back());
    users_.pop_back();
  }

  void evict(int num_pages) {
    const int num_evictable = cache_.num_evictable_pages();
    std::vector<PageId> freed;
    cache_.evict(num_pages, freed);
    RC_ASSERT(static_cast<int>(freed.size()) == std::min(num_pages, num_evictable));
    const std::set<PrefixKey> locked = locked_keys();
    for (const PageId page : freed) {
      const auto found =
          std::ranges::find_if(cached_, [&](const auto& entry) { return entry.second == page; });
      RC_ASSERT(found != cached_.end() && !locked.contains(found->first));
      cached_.erase(found);
    }
    allocator_->free_pages(freed);
    // A prefix is found only if all its pages are cached.
    for (const auto& [key, page] : cached_)
      RC_ASSERT(num_cached_pages(key.salt, key.tokens) * page_size_ == key.tokens.size());
  }

  void drop() {
    for (CacheUser& user : users_) {
      allocator_->free_pages(View<const PageId>(user.pages).subspan(user.num_locked()));
      user.lock.release();
    }
    users_.clear();
    allocator_->free_pages(cache_.pages());
    cache_.drop();
    cached_.clear();
    RC_ASSERT(allocator_->num_used_slots() == 0);
  }

  // Checks that each page has one owner, and that free + cached + used = total.
  void check() const {
    cache_.check();
    allocator_->check_conservation();
    std::set<PageId> owned;
    for (const PageId page : cache_.pages()) RC_ASSERT(owned.insert(page).second);
    RC_ASSERT(owned.size() == cached_.size());
    for (const CacheUser& user : users_)
      for (size_t page = 0; page < user.pages.size(); ++page) {
        if (page < user.num_locked())
          RC_ASSERT(user.pages[page] == cached_.at(key(user, page)));
        else
          RC_ASSERT(owned.insert(user.pages[page]).second);
      }
    RC_ASSERT(static_cast<int>(owned.size() * page_size_) == allocator_->num_used_slots());
    RC_ASSERT(cache_.num_locked_pages() == static_cast<int>(locked_keys().size()));
    RC_ASSERT(cache_.num_pages() == static_cast<int>(cached_.size()));
  }

  size_t num_cached() const { return cached_.size(); }

 private:
  // Tokens of each page are equal, so that random sequences share whole pages. Sometimes a token within a
  // page differs, and sometimes the last page is partial.
  std::vector<int32_t> random_tokens() const {
    std::vector<int32_t> tokens;
    for (int page = random_below(6); page > 0; --page)
      tokens.insert(tokens.end(), page_size_, random_below(3));
    if (!tokens.empty() && random_below(4) == 0)
      tokens[static_cast<size_t>(random_below(static_cast<int>(tokens.size())))] = random_below(3);
    tokens.insert(tokens.end(), static_cast<size_t>(random_below(static_cast<int>(page_size_))), 2);
    return tokens;
  }

  CacheUser& any_user() { return users_[static_cast<size_t>(random_below(static_cast<int>(users_.size())))]; }

  PrefixKey key(const CacheUser& user, size_t page) const {
    const auto end = static_cast<std::ptrdiff_t>((page + 1) * page_size_);
    return {user.salt, {user.tokens.begin(), user.tokens.begin() + end}};
  }

  size_t num_cached_pages(const std::string& salt, const std::vector<int32_t>& tokens) const {
    size_t num_pages = 0;
    for (size_t end = page_size_; end <= tokens.size(); end += page_size_, ++num_pages)
      if (!cached_.contains({salt, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)}}))
        break;
    return num_pages;
  }

  std::set<PrefixKey> locked_keys() const {
    std::set<PrefixKey> keys;
    for (const CacheUser& user : users_)
      for (size_t page = 0; page < user.num_locked(); ++page) keys.insert(key(user, page));
    return keys;
  }

  View<const int32_t> own_tokens(const CacheUser& user) const {
    const size_t first = user.num_locked();
    return View<const int32_t>(user.tokens)
        .subspan(first * page_size_, (user.pages.size() - first) * page_size_);
  }

  // Allocates pages for a request up to `num_pages`, or none if too few are free.
  bool allocate_pages(CacheUser& user, size_t num_pages) {
    const auto num_new = static_cast<int>(num_pages - user.pages.size());
    if (num_new > allocator_->num_free_pages()) evict(num_new - allocator_->num_free_pages());
    std::vector<TokenSlot> slots(static_cast<size_t>(num_new) * page_size_);
    const int32_t before = 0, after = static_cast<int32_t>(slots.size());
    if (!allocator_->alloc_extend({&before, 1}, {&after, 1}, {&kNoSlot, 1}, slots)) return false;
    for (size_t slot = 0; slot < slots.size(); slot += page_size_)
      user.pages.emplace_back(slots[slot].value / static_cast<int32_t>(page_size_));
    return true;
  }

  void insert(CacheUser& user) {
    const size_t first = user.num_locked();
    const size_t num_cached = std::max(first, num_cached_pages(user.salt, user.tokens));
    const std::vector<PageId> before = user.pages;
    std::vector<PageId> duplicates;
    cache_.insert(user.lock, own_tokens(user), View<PageId>(user.pages).subspan(first), random_below(3),
                  duplicates);
    for (size_t page = first; page < user.pages.size(); ++page) {
      if (page < num_cached)
        RC_ASSERT(user.pages[page] == cached_.at(key(user, page)));
      else
        RC_ASSERT(user.pages[page] == before[page]);
      cached_.emplace(key(user, page), user.pages[page]);
    }
    RC_ASSERT(std::ranges::equal(duplicates, View<const PageId>(before).subspan(first, num_cached - first)));
    RC_ASSERT(user.num_locked() == user.pages.size());
    allocator_->free_pages(duplicates);
  }

  size_t page_size_;
  std::unique_ptr<SlotAllocator> allocator_;
  PrefixCache cache_;
  std::vector<CacheUser> users_;
  std::map<PrefixKey, PageId> cached_;
};

RC_GTEST_PROP(PrefixCacheProperty, FindsCachedPrefixesAndEachPageHasOneOwner, ()) {
  CacheSimulation world(
      *rc::gen::element(1, 16, 64), 2 + random_below(38),
      *rc::gen::element(EvictionPolicy::kLru, EvictionPolicy::kLfu, EvictionPolicy::kPriority));
  size_t max_cached = 0;
  for (int event = 1 + random_below(80); event > 0; --event) {
    switch (random_below(16)) {
      case 0:
        world.evict(random_below(12));
        break;
      case 1:
      case 2:
        world.grow();
        break;
      case 3:
      case 4:
        world.insert();
        break;
      case 5:
      case 6:
        world.insert_pending();
        break;
      case 7:
      case 8:
      case 9:
        world.end(true);
        break;
      case 10:
        world.end(false);
        break;
      case 11:
        if (random_below(8) == 0) world.drop();
        break;
      default:
        world.admit();
    }
    world.check();
    max_cached = std::max(max_cached, world.num_cached());
  }
  world.drop();
  world.check();
  RC_CLASSIFY(max_cached > 8, "with more than 8 cached pages");
}

}  // namespace
}  // namespace attend
