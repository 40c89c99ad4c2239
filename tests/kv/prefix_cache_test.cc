#include "attend/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <new>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "attend/base/error.h"
#include "tests/support/count_allocations.h"

namespace attend {
namespace {

using Tokens = std::vector<int32_t>;

Tokens count_from(int32_t first, int num_tokens) {
  Tokens tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<PageId> page_ids(std::initializer_list<int32_t> numbers) {
  return std::vector<PageId>(numbers.begin(), numbers.end());
}

class PrefixCacheTest : public testing::Test {
 protected:
  void make(int page_size, EvictionPolicy policy = EvictionPolicy::kLru) {
    cache_ = std::make_unique<PrefixCache>(page_size, policy);
  }

  struct Found {
    PrefixLock lock;
    std::vector<PageId> pages;
  };
  // Matches the prompt of a request in the cache. At least one token is left to compute.
  Found admit(const Tokens& prompt, std::string_view salt = {}) {
    Found found{cache_->open(salt), std::vector<PageId>(prompt.size())};
    const View<const int32_t> all(prompt);
    found.pages.resize(
        static_cast<size_t>(cache_->match(found.lock, all.first(all.size() - 1), found.pages)));
    cache_->check();
    return found;
  }

  // Inserts all pages of `tokens`, of which `found` are locked. Own pages are numbered from `first_own_page`.
  // Returns the pages of the request row after insertion.
  std::vector<PageId> insert(Found& found, const Tokens& tokens, int32_t first_own_page, int priority = 0) {
    const auto page_size = static_cast<size_t>(cache_->page_size());
    const size_t num_pages = tokens.size() / page_size, num_locked = found.pages.size();
    for (size_t page = num_locked; page < num_pages; ++page) found.pages.emplace_back(first_own_page++);
    cache_->insert(
        found.lock,
        View<const int32_t>(tokens).subspan(num_locked * page_size, (num_pages - num_locked) * page_size),
        View<PageId>(found.pages).subspan(num_locked), priority, duplicates_);
    cache_->check();
    return found.pages;
  }

  // Runs a request that computes all tokens and ends.
  void run(const Tokens& tokens, int32_t first_own_page, int priority = 0, std::string_view salt = {}) {
    Found found = admit(tokens, salt);
    insert(found, tokens, first_own_page, priority);
  }

  std::vector<PageId> evict(int num_pages) {
    std::vector<PageId> freed;
    cache_->evict(num_pages, freed);
    cache_->check();
    return freed;
  }

  std::unique_ptr<PrefixCache> cache_;
  std::vector<PageId> duplicates_;
};

TEST_F(PrefixCacheTest, StartsEmpty) {
  make(4);
  EXPECT_EQ(admit(count_from(1, 10)).lock.num_pages(), 0);
  EXPECT_EQ(cache_->num_pages(), 0);
  EXPECT_TRUE(evict(3).empty());
}

// Pages of 4. A has prompt 1..10 and output 11, 12, 13; the last output token is not computed.
TEST_F(PrefixCacheTest, MatchesInsertsAndSplitsPrefixes) {
  make(4);
  Found a = admit(count_from(1, 10));
  EXPECT_EQ(insert(a, count_from(1, 12), 1), page_ids({1, 2, 3}));
  a = {};
  EXPECT_EQ(cache_->num_pages(), 3);

  // B has the same prompt. At most 9 of its tokens can be cached, which is two pages.
  Found b = admit(count_from(1, 10));
  EXPECT_EQ(b.pages, page_ids({1, 2}));
  // C differs after 6 tokens and shares one page, so the node is split there.
  Found c = admit(count_from(1, 6) + Tokens{99, 98, 97});
  EXPECT_EQ(c.pages, page_ids({1}));
  EXPECT_EQ(cache_->num_nodes(), 3);

  // B has computed its own page for 9..12. It is a duplicate, and the row gets the cached page.
  EXPECT_EQ(insert(b, count_from(1, 12), 7), page_ids({1, 2, 3}));
  EXPECT_EQ(duplicates_, page_ids({7}));
  // Other tokens form another branch.
  Found d = admit(count_from(1, 10));
  EXPECT_EQ(insert(d, count_from(1, 8) + Tokens{9, 10, 50, 51}, 8), page_ids({1, 2, 8}));
  EXPECT_EQ(cache_->num_pages(), 4);

  // A prompt of 8 cached tokens: the second page is computed again and then returned as a duplicate.
  duplicates_.clear();
  Found e = admit(count_from(1, 8));
  EXPECT_EQ(e.pages, page_ids({1}));
  EXPECT_EQ(insert(e, count_from(1, 8), 9), page_ids({1, 2}));
  EXPECT_EQ(duplicates_, page_ids({9}));
}

// The tree has 4 tokens in other slots than a request of 10 tokens that was admitted before they were
// inserted.
TEST_F(PrefixCacheTest, ReturnsDuplicatePages) {
  make(4);
  Found late = admit(count_from(1, 10));
  run(count_from(1, 4), 20);
  EXPECT_EQ(insert(late, count_from(1, 8), 1), page_ids({20, 2}));
  EXPECT_EQ(duplicates_, page_ids({1}));
  EXPECT_EQ(late.lock.num_pages(), 2);
  EXPECT_EQ(cache_->num_locked_pages(), 2);
}

TEST_F(PrefixCacheTest, DoesNotEvictLockedPages) {
  make(1);
  run(count_from(1, 3), 1);
  Found held = admit(Tokens{1, 2, 3});  // two of three tokens
  EXPECT_EQ(cache_->num_evictable_pages(), 1);
  EXPECT_EQ(cache_->num_locked_pages(), 2);
  EXPECT_EQ(evict(5), page_ids({3})) << "the end goes, what was matched stays";
  EXPECT_TRUE(evict(5).empty());
  held.lock.release();
  EXPECT_EQ(cache_->num_evictable_pages(), 2);
  EXPECT_EQ(evict(5), page_ids({2, 1}));
  EXPECT_EQ(cache_->num_nodes(), 0);
}

TEST_F(PrefixCacheTest, EvictsRequestedPagesFromTheEnd) {
  make(2);
  run(count_from(1, 20), 1);
  EXPECT_EQ(evict(3), page_ids({10, 9, 8}));
  EXPECT_EQ(admit(count_from(1, 20)).lock.num_pages(), 7);
}

TEST_F(PrefixCacheTest, LocksCountEachHolder) {
  make(1);
  run(count_from(1, 4), 1);
  Found one = admit(count_from(1, 4)), two = admit(count_from(1, 4));
  one.lock.release();
  one.lock.release();
  EXPECT_FALSE(one.lock);
  EXPECT_EQ(cache_->num_locked_pages(), 3) << "released once, even if release() is called again";
  PrefixLock moved = std::move(two.lock);
  two.lock.release();
  EXPECT_EQ(cache_->num_locked_pages(), 3) << "what was moved away holds nothing";
  moved = PrefixLock();
  EXPECT_EQ(cache_->num_locked_pages(), 0);
  static_assert(!std::is_copy_constructible_v<PrefixLock> && !std::is_copy_assignable_v<PrefixLock>);
}

TEST_F(PrefixCacheTest, LockSurvivesASplitOfItsNode) {
  make(1);
  Found long_one = admit(count_from(1, 8));
  insert(long_one, count_from(1, 8), 1);
  Found other = admit(Tokens{1, 2, 3, 70, 71});
  EXPECT_EQ(other.pages, page_ids({1, 2, 3}));
  other.lock.release();
  EXPECT_EQ(cache_->num_locked_pages(), 8);
  long_one.lock.release();
  EXPECT_EQ(cache_->num_locked_pages(), 0);
  EXPECT_EQ(evict(8).size(), 8u);
}

TEST_F(PrefixCacheTest, NamespacesShareNoPages) {
  make(2);
  run(count_from(1, 6), 1, 0, "alice");
  EXPECT_EQ(admit(count_from(1, 6)).lock.num_pages(), 0);
  EXPECT_EQ(admit(count_from(1, 6), "bob").lock.num_pages(), 0);
  EXPECT_EQ(admit(count_from(1, 7), "alice").lock.num_pages(), 3);
  EXPECT_EQ(cache_->num_cached_tokens("alice", count_from(1, 9)), 6);
  EXPECT_EQ(cache_->num_cached_tokens("", count_from(1, 9)), 0);
  EXPECT_EQ(evict(9).size(), 3u);
}

TEST_F(PrefixCacheTest, LruEvictsTheLeastRecentlyUsed) {
  make(1);
  run({1, 2}, 1);
  run({3, 4}, 3);
  admit({1, 2, 9});
  EXPECT_EQ(evict(1), page_ids({4}));
  EXPECT_EQ(evict(2), page_ids({3, 2}));
}

TEST_F(PrefixCacheTest, LruUsesTheTimeOfTheLastRelease) {
  make(1);
  Found early = admit({1, 2});
  insert(early, {1, 2}, 1);
  run({3, 4}, 3);
  early.lock.release();
  EXPECT_EQ(evict(1), page_ids({4}));
}

TEST_F(PrefixCacheTest, LfuEvictsTheLeastFrequentlyUsed) {
  make(1, EvictionPolicy::kLfu);
  run({1, 2}, 1);
  for (int i = 0; i < 3; ++i) admit({1, 2, 9});
  run({3, 4}, 3);
  admit({3, 4, 9});
  EXPECT_EQ(evict(1), page_ids({4}));
  // A request counts once, however often it matches its own prefix.
  Found again = admit({5, 6});
  for (int i = 1; i < 9; ++i) insert(again, count_from(5, i), 4 + i);
  again.lock.release();
  EXPECT_EQ(evict(1), page_ids({12}));
}

TEST_F(PrefixCacheTest, PriorityEvictsTheLowestAndRaisesSharedPrefixes) {
  make(1, EvictionPolicy::kPriority);
  run({1, 2}, 1, 5);
  run({3, 4}, 3, 1);
  run({5, 6}, 5, 3);
  EXPECT_EQ(evict(1), page_ids({4}));
  run({3, 8}, 8, 9);
  EXPECT_EQ(evict(2), page_ids({6, 5}));
  EXPECT_EQ(evict(2), page_ids({2, 1}));
  EXPECT_EQ(evict(2), page_ids({8, 3}));
}

TEST_F(PrefixCacheTest, AdoptsPagesBeforeTheyAreComputed) {
  make(2);
  Found first = admit(count_from(1, 9));
  first.pages = page_ids({1, 2, 3, 4});
  ASSERT_TRUE(cache_->insert_pending(first.lock, count_from(1, 8), first.pages, 0));
  EXPECT_EQ(first.lock.num_pages(), 4);
  EXPECT_EQ(admit(count_from(1, 9)).pages, first.pages);

  // The last page of the same prompt is computed again. It must stay the request's own page to be written.
  Found second = admit(count_from(1, 8));
  EXPECT_EQ(second.pages, page_ids({1, 2, 3}));
  const std::vector<PageId> own = page_ids({9});
  EXPECT_FALSE(cache_->insert_pending(second.lock, Tokens{7, 8}, own, 0));
  EXPECT_EQ(second.lock.num_pages(), 3);
  cache_->check();
}

// Destructors release locks, and an exception there would end the program.
TEST_F(PrefixCacheTest, ReleasesLocksWithoutAllocating) {
  make(4);
  std::vector<PrefixLock> locks;
  for (int i = 0; i < 300; ++i) locks.push_back(cache_->open("namespace " + std::to_string(i)));
  const int64_t before = testing_support::num_allocations();
  for (PrefixLock& lock : locks) lock.release();
  EXPECT_EQ(testing_support::num_allocations(), before);
  cache_->check();
}

TEST_F(PrefixCacheTest, OpensANamespaceAfterAFailedAllocation) {
  make(4);
  std::vector<PrefixLock> locks;
  int num_failures = 0;
  for (int64_t num_good = 0; num_good < 8; ++num_good) {
    const std::string salt = "one of the namespaces, number " + std::to_string(num_good);
    testing_support::fail_one_allocation_after(num_good);
    try {
      locks.push_back(cache_->open(salt));
    } catch (const std::bad_alloc&) {
      ++num_failures;
      cache_->check();
      EXPECT_EQ(cache_->num_cached_tokens(salt, count_from(0, 8)), 0);
    }
    testing_support::fail_one_allocation_after(-1);
    locks.push_back(cache_->open(salt));
  }
  EXPECT_GT(num_failures, 1);
  locks.clear();
  cache_->check();
}

TEST_F(PrefixCacheTest, DropRemovesAllPages) {
  make(2);
  run(count_from(1, 8), 1);
  Found held = admit(count_from(1, 8));
  cache_->drop();
  cache_->check();
  EXPECT_EQ(cache_->num_pages(), 0);
  run(count_from(1, 8), 1);
  EXPECT_EQ(cache_->num_evictable_pages(), 4);
  std::vector<PageId> pages(4);
  EXPECT_THROW(cache_->match(held.lock, count_from(9, 2), pages), Error);
  held.lock.release();
  cache_->check();
  EXPECT_EQ(cache_->num_evictable_pages(), 4);
}

TEST_F(PrefixCacheTest, FindsWhereTokensDifferFromTheMostSimilarPages) {
  make(4);
  const auto num_shared = [this](const Tokens& prompt) {
    const Found found = admit(prompt + Tokens{999});
    return cache_->num_shared_in_next_page(found.lock,
                                           View<const int32_t>(prompt).subspan(found.pages.size() * 4));
  };
  EXPECT_EQ(num_shared(count_from(0, 8)), std::nullopt) << "nothing is cached";
  run(count_from(0, 12), 1);
  EXPECT_EQ(num_shared(count_from(0, 12)), std::nullopt) << "the prompt is cached";
  EXPECT_EQ(num_shared(count_from(0, 20)), std::nullopt) << "the prompt continues the cached one";
  EXPECT_EQ(num_shared(count_from(0, 10)), std::nullopt) << "a cached page begins with its last tokens";
  EXPECT_EQ(num_shared(count_from(0, 6) + count_from(50, 8)), 2);
  EXPECT_EQ(num_shared(count_from(50, 8)), 0);
  run(count_from(0, 4) + Tokens{4, 5, 6, 70}, 10);
  run(count_from(0, 4) + Tokens{4, 60, 61, 62}, 20);
  EXPECT_EQ(num_shared(count_from(0, 4) + Tokens{4, 5, 6, 80}), 3) << "the most similar page counts";
  EXPECT_EQ(num_shared(count_from(0, 4) + Tokens{4, 60, 80}), 2);
}

TEST_F(PrefixCacheTest, IgnoresPartialPages) {
  make(4);
  run(count_from(1, 11), 1);
  EXPECT_EQ(cache_->num_pages(), 2);
  EXPECT_EQ(cache_->num_cached_tokens("", count_from(1, 7)), 4);
  EXPECT_EQ(cache_->num_cached_tokens("", count_from(1, 3)), 0);
}

TEST_F(PrefixCacheTest, RejectsMismatchedPagesAndTokens) {
  make(4);
  PrefixLock lock = cache_->open();
  std::vector<PageId> pages = page_ids({1});
  EXPECT_THROW(cache_->insert(lock, count_from(1, 5), pages, 0, duplicates_), Error);
  EXPECT_THROW(cache_->insert_pending(lock, count_from(1, 8), pages, 0), Error);
  EXPECT_THROW(cache_->match(lock, count_from(1, 8), pages), Error);
  PrefixLock none;
  EXPECT_THROW(cache_->match(none, count_from(1, 4), pages), Error);
  cache_->check();
}

TEST(EvictionPolicy, IsParsedFromItsName) {
  EXPECT_EQ(parse_eviction_policy("lfu"), EvictionPolicy::kLfu);
  EXPECT_EQ(to_string(parse_eviction_policy("priority")), "priority");
  try {
    parse_eviction_policy("random");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "eviction policy random: expected lru, lfu or priority");
  }
}

// Keys are opaque: those that are no token's match themselves, and never a token.
TEST_F(PrefixCacheTest, MatchesKeysBelowZeroLikeTokenIds) {
  make(2);
  const Tokens text = {1, 2}, item = {-7, -8}, other_item = {-7, -9}, end = {3, 4, 5};
  run(text + item + end, 1);
  EXPECT_EQ(admit(text + item + end).lock.num_pages(), 3);
  EXPECT_EQ(admit(text + other_item + end).lock.num_pages(), 1);
  EXPECT_EQ(admit(text + Tokens{7, 8} + end).lock.num_pages(), 1);
  EXPECT_EQ(cache_->num_cached_tokens({}, text + item), 4);
  cache_->check();
}

}  // namespace
}  // namespace attend
