// Random requests over a prefix cache and a real allocator, against a model that knows every cached prefix by
// its tokens: what is found, what is evicted, and whose every page is.
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

// Evenly, in small cases too.
int random_below(int end) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, end)); }

// Where a cached page stands: its namespace and all tokens up to its end.
struct Place {
  std::string salt;
  std::vector<int32_t> tokens;
  auto operator<=>(const Place&) const = default;
};

// A request that has computed `tokens`, whole pages of which are `pages`: the first num_locked() are the
// cache's, the rest its own.
struct Sharer {
  std::string salt;
  std::vector<int32_t> tokens;
  std::vector<PageId> pages;
  PrefixLock lock;

  size_t num_locked() const { return static_cast<size_t>(lock.num_pages()); }
};

class CacheWorld {
 public:
  CacheWorld(int page_size, int num_pages, EvictionPolicy policy)
      : page_size_(static_cast<size_t>(page_size)),
        allocator_(make_allocator(page_size, num_pages)),
        cache_(page_size, policy) {}

  void admit() {
    Sharer sharer;
    sharer.salt = *rc::gen::element<std::string>("", "", "salt");
    sharer.tokens = random_tokens();
    const size_t num_pages = sharer.tokens.size() / page_size_;
    const size_t expected = num_cached_pages(sharer.salt, sharer.tokens);
    RC_ASSERT(cache_.num_cached_tokens(sharer.salt, sharer.tokens) ==
              static_cast<int>(expected * page_size_));
    sharer.lock = cache_.open(sharer.salt);
    sharer.pages.resize(num_pages);
    const auto found = static_cast<size_t>(cache_.match(sharer.lock, sharer.tokens, sharer.pages));
    RC_ASSERT(found == expected && sharer.num_locked() == expected);
    for (size_t page = 0; page < found; ++page)
      RC_ASSERT(sharer.pages[page] == cached_.at(place(sharer, page)));
    sharer.pages.resize(found);
    if (!take_pages(sharer, num_pages)) return;  // its lock goes with it
    sharers_.push_back(std::move(sharer));
  }

  // Another chunk of a prompt, or an answer.
  void grow() {
    if (sharers_.empty()) return;
    Sharer& sharer = some_sharer();
    const std::vector<int32_t> more = random_tokens();
    sharer.tokens.resize(sharer.tokens.size() / page_size_ * page_size_);
    sharer.tokens.insert(sharer.tokens.end(), more.begin(), more.end());
    if (!take_pages(sharer, sharer.tokens.size() / page_size_))
      sharer.tokens.resize(sharer.pages.size() * page_size_);
  }

  void insert() {
    if (!sharers_.empty()) insert(some_sharer());
  }

  void adopt() {
    if (sharers_.empty()) return;
    Sharer& sharer = some_sharer();
    const size_t first = sharer.num_locked();
    const bool is_new = first < sharer.pages.size() && num_cached_pages(sharer.salt, sharer.tokens) <= first;
    RC_ASSERT(cache_.adopt(sharer.lock, own_tokens(sharer), View<const PageId>(sharer.pages).subspan(first),
                           0) == is_new);
    if (is_new)
      for (size_t page = first; page < sharer.pages.size(); ++page)
        cached_.emplace(place(sharer, page), sharer.pages[page]);
  }

  void end(bool inserted) {
    if (sharers_.empty()) return;
    Sharer& sharer = some_sharer();
    if (inserted) insert(sharer);
    allocator_->free_pages(View<const PageId>(sharer.pages).subspan(sharer.num_locked()));
    std::swap(sharer, sharers_.back());
    sharers_.pop_back();
  }

  void evict(int num_pages) {
    const int num_evictable = cache_.num_evictable_pages();
    std::vector<PageId> freed;
    cache_.evict(num_pages, freed);
    RC_ASSERT(static_cast<int>(freed.size()) == std::min(num_pages, num_evictable));
    const std::set<Place> locked = locked_places();
    for (const PageId page : freed) {
      const auto found =
          std::ranges::find_if(cached_, [&](const auto& entry) { return entry.second == page; });
      RC_ASSERT(found != cached_.end() && !locked.contains(found->first));
      cached_.erase(found);
    }
    allocator_->free_pages(freed);
    // A prefix without its start could not be found.
    for (const auto& [place, page] : cached_)
      RC_ASSERT(num_cached_pages(place.salt, place.tokens) * page_size_ == place.tokens.size());
  }

  void drop() {
    for (Sharer& sharer : sharers_) {
      allocator_->free_pages(View<const PageId>(sharer.pages).subspan(sharer.num_locked()));
      sharer.lock.release();
    }
    sharers_.clear();
    allocator_->free_pages(cache_.pages());
    cache_.drop();
    cached_.clear();
    RC_ASSERT(allocator_->num_used_slots() == 0);
  }

  // One owner for each page, and free + cached + used = total.
  void check() const {
    cache_.check();
    allocator_->check_conservation();
    std::set<PageId> owned;
    for (const PageId page : cache_.pages()) RC_ASSERT(owned.insert(page).second);
    RC_ASSERT(owned.size() == cached_.size());
    for (const Sharer& sharer : sharers_)
      for (size_t page = 0; page < sharer.pages.size(); ++page) {
        if (page < sharer.num_locked())
          RC_ASSERT(sharer.pages[page] == cached_.at(place(sharer, page)));
        else
          RC_ASSERT(owned.insert(sharer.pages[page]).second);
      }
    RC_ASSERT(static_cast<int>(owned.size() * page_size_) == allocator_->num_used_slots());
    RC_ASSERT(cache_.num_locked_pages() == static_cast<int>(locked_places().size()));
    RC_ASSERT(cache_.num_pages() == static_cast<int>(cached_.size()));
  }

  size_t num_cached() const { return cached_.size(); }

 private:
  // Pages of one letter each, so that whole pages meet; at times a token within one differs, at times the end
  // is a part of a page.
  std::vector<int32_t> random_tokens() const {
    std::vector<int32_t> tokens;
    for (int page = random_below(6); page > 0; --page)
      tokens.insert(tokens.end(), page_size_, random_below(3));
    if (!tokens.empty() && random_below(4) == 0)
      tokens[static_cast<size_t>(random_below(static_cast<int>(tokens.size())))] = random_below(3);
    tokens.insert(tokens.end(), static_cast<size_t>(random_below(static_cast<int>(page_size_))), 2);
    return tokens;
  }

  Sharer& some_sharer() {
    return sharers_[static_cast<size_t>(random_below(static_cast<int>(sharers_.size())))];
  }

  Place place(const Sharer& sharer, size_t page) const {
    const auto end = static_cast<std::ptrdiff_t>((page + 1) * page_size_);
    return {sharer.salt, {sharer.tokens.begin(), sharer.tokens.begin() + end}};
  }

  size_t num_cached_pages(const std::string& salt, const std::vector<int32_t>& tokens) const {
    size_t num_pages = 0;
    for (size_t end = page_size_; end <= tokens.size(); end += page_size_, ++num_pages)
      if (!cached_.contains({salt, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)}}))
        break;
    return num_pages;
  }

  std::set<Place> locked_places() const {
    std::set<Place> places;
    for (const Sharer& sharer : sharers_)
      for (size_t page = 0; page < sharer.num_locked(); ++page) places.insert(place(sharer, page));
    return places;
  }

  View<const int32_t> own_tokens(const Sharer& sharer) const {
    const size_t first = sharer.num_locked();
    return View<const int32_t>(sharer.tokens)
        .subspan(first * page_size_, (sharer.pages.size() - first) * page_size_);
  }

  // Pages for a request until it has `num_pages`; without enough it gets none.
  bool take_pages(Sharer& sharer, size_t num_pages) {
    const auto wanted = static_cast<int>(num_pages - sharer.pages.size());
    if (wanted > allocator_->num_free_pages()) evict(wanted - allocator_->num_free_pages());
    std::vector<TokenSlot> slots(static_cast<size_t>(wanted) * page_size_);
    const int32_t before = 0, after = static_cast<int32_t>(slots.size());
    if (!allocator_->alloc_extend({&before, 1}, {&after, 1}, {&kNoSlot, 1}, slots)) return false;
    for (size_t slot = 0; slot < slots.size(); slot += page_size_)
      sharer.pages.emplace_back(slots[slot].value / static_cast<int32_t>(page_size_));
    return true;
  }

  void insert(Sharer& sharer) {
    const size_t first = sharer.num_locked();
    const size_t num_cached = std::max(first, num_cached_pages(sharer.salt, sharer.tokens));
    const std::vector<PageId> before = sharer.pages;
    std::vector<PageId> duplicates;
    cache_.insert(sharer.lock, own_tokens(sharer), View<PageId>(sharer.pages).subspan(first), random_below(3),
                  duplicates);
    for (size_t page = first; page < sharer.pages.size(); ++page) {
      if (page < num_cached)
        RC_ASSERT(sharer.pages[page] == cached_.at(place(sharer, page)));
      else
        RC_ASSERT(sharer.pages[page] == before[page]);
      cached_.emplace(place(sharer, page), sharer.pages[page]);
    }
    RC_ASSERT(std::ranges::equal(duplicates, View<const PageId>(before).subspan(first, num_cached - first)));
    RC_ASSERT(sharer.num_locked() == sharer.pages.size());
    allocator_->free_pages(duplicates);
  }

  size_t page_size_;
  std::unique_ptr<SlotAllocator> allocator_;
  PrefixCache cache_;
  std::vector<Sharer> sharers_;
  std::map<Place, PageId> cached_;
};

RC_GTEST_PROP(PrefixCacheProperty, FindsWhatIsThereAndGivesEachPageOneOwner, ()) {
  CacheWorld world(*rc::gen::element(1, 16, 64), 2 + random_below(38),
                   *rc::gen::element(EvictionPolicy::kLru, EvictionPolicy::kLfu, EvictionPolicy::kPriority));
  size_t most_cached = 0;
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
        world.adopt();
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
    most_cached = std::max(most_cached, world.num_cached());
  }
  world.drop();
  world.check();
  RC_CLASSIFY(most_cached > 8, "with more than 8 cached pages");
}

}  // namespace
}  // namespace attend
