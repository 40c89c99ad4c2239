// PrefixCache: which pages hold the K/V of which tokens, so that a request whose first tokens were computed
// before starts behind them.
//
// Tokens are compared by keys: one opaque 32-bit integer per token. Token ids are 0 or more, so keys below 0
// can represent other content.
//
// One radix tree over pages: a node has the tokens and pages of a run, and every path from a root is a prefix
// that is cached. A page can be shared as soon as all of its tokens are known; what is shared is whole pages.
//
// A page has one owner at a time: the allocator's free list, a node of the tree, or the end of one request's
// row. The cache calls no allocator: pages come in by insert() and adopt() and leave by evict(), or are
// handed back as duplicates.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// Which cached prefix goes first when pages are short. Among equals it is the one whose last use is longest
// ago.
enum class EvictionPolicy : uint8_t {
  kLru,       // the one whose last use is longest ago
  kLfu,       // the one that the fewest requests used
  kPriority,  // the one whose requests have the lowest priority
};
std::string_view to_string(EvictionPolicy policy);
// Throws Error(kInvalidArgument) for a name other than lru, lfu and priority.
EvictionPolicy parse_eviction_policy(std::string_view name);

class EvictionHeap;
class PrefixCache;
struct EvictionKey;

// The receipt for a prefix that is in use: while it lives its pages are not evicted. Releasing it is what its
// end does, so nobody releases twice. The cache outlives it.
class PrefixLock {
 public:
  PrefixLock() = default;  // of nothing
  PrefixLock(PrefixLock&& other) noexcept;
  PrefixLock& operator=(PrefixLock&& other) noexcept;
  ~PrefixLock() { release(); }

  // Pages of the prefix, from position 0 on.
  int num_pages() const { return num_pages_; }
  // Holds a prefix, be it the empty one.
  explicit operator bool() const { return cache_ != nullptr; }
  void release() noexcept;

 private:
  friend class PrefixCache;
  PrefixLock(PrefixCache& cache, uint64_t generation, int32_t node)
      : cache_(&cache), generation_(generation), node_(node) {}

  PrefixCache* cache_ = nullptr;
  uint64_t generation_ = 0;
  int32_t node_ = -1;
  int num_pages_ = 0;
};

// Not thread-safe: the engine's owner thread calls it. What no right engine passes throws Error(kInternal)
// and changes nothing.
class PrefixCache {
 public:
  PrefixCache(int page_size, EvictionPolicy policy);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The empty prefix of a namespace. Requests of different salts share nothing.
  PrefixLock open(std::string_view salt = {});

  // Lengthens the locked prefix by the pages of `keys` that are cached. `keys` follow the prefix; a part of a
  // page at their end counts for nothing. Writes the page ids to the front of `pages` [at least
  // keys.size() / page_size] and returns how many they are.
  int match(PrefixLock& lock, View<const int32_t> keys, View<PageId> pages);
  // How many of `keys` are cached, from the start of a namespace. Locks and changes nothing.
  int num_cached_tokens(std::string_view salt, View<const int32_t> keys) const;

  // Takes over pages whose K/V is computed, which follow the locked prefix, and locks them. `keys`:
  // [pages.size() * page_size]. Where the cache has a page of the same keys the caller's own is a
  // duplicate: it goes to the end of `duplicates`, to be freed, and the cache's takes its place in `pages`,
  // to be written to the row. Nodes on the way get `priority` if theirs is lower.
  void insert(PrefixLock& lock, View<const int32_t> keys, View<PageId> pages, int priority,
              std::vector<PageId>& duplicates);
  // The same for pages that the next step is going to compute, for other requests of that step to read. They
  // are taken over all, or none: where the cache has the first page already the caller's stay what they are,
  // since they are going to be written. Returns whether they were.
  bool adopt(PrefixLock& lock, View<const int32_t> keys, View<const PageId> pages, int priority);

  // Gives up `num_pages` pages that nobody has locked, the ends of prefixes first, or all there are. They go
  // to the end of `freed`.
  void evict(int num_pages, std::vector<PageId>& freed);
  // Forgets everything, in whatever state it is; locks are of nothing then. Whose the pages are is up to the
  // caller.
  void drop();

  int page_size() const { return static_cast<int>(page_size_); }
  int num_pages() const { return num_evictable_ + num_locked_; }
  int num_evictable_pages() const { return num_evictable_; }
  int num_locked_pages() const { return num_locked_; }
  // Runs of tokens in the tree, the starts of namespaces not counted.
  int num_nodes() const { return static_cast<int>(children_.size()); }
  // All pages that the cache owns, in no order.
  std::vector<PageId> pages() const;

  // Throws Error(kInternal) unless the tree is one, its counts are right, and no page is in it twice. Reads
  // everything: for tests and debug builds.
  void check() const;

 private:
  friend class PrefixLock;

  struct Node {
    int32_t parent = -1;  // -1: the start of a namespace, or not in use
    int32_t num_children = 0;
    int32_t num_locks = 0;  // at this node and below
    int32_t end_page = 0;   // pages from the start of the namespace to its end
    int64_t num_uses = 0;   // by requests
    int64_t priority = 0;
    uint64_t last_use = 0;
    const std::string* salt = nullptr;  // of the start of a namespace
    std::vector<int32_t> keys;          // [pages.size() * page_size]
    std::vector<PageId> pages;
  };
  // Where a step from a node leads by the tokens of one page.
  struct Step {
    int32_t node = -1;  // -1: nowhere
    size_t num_pages = 0;
  };
  // A key is a hash already.
  struct SameHash {
    size_t operator()(uint64_t hash) const noexcept { return hash; }
  };
  using Children = std::unordered_multimap<uint64_t, int32_t, SameHash>;

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  void check_lock(const PrefixLock& lock) const;
  uint64_t child_hash(int32_t parent, const int32_t* page) const;
  Step step(int32_t from, View<const int32_t> keys) const;
  // A step whose node ends where `tokens` part from it.
  Step step_and_split(int32_t from, View<const int32_t> keys);
  int32_t split(int32_t node, size_t num_pages);
  int32_t add_node();
  void add_leaf(PrefixLock& lock, View<const int32_t> keys, View<const PageId> pages, int priority);
  void link(int32_t node);
  Children::iterator child_link(int32_t node);
  void move_lock(PrefixLock& lock, int32_t node);
  void raise_priority(int32_t node, int priority);
  void unlock(int32_t node) noexcept;
  void add_evictable(int32_t node);
  void remove_leaf(int32_t node);
  void remove_start(int32_t node);
  EvictionKey key_of(const Node& node) const;

  size_t page_size_;
  EvictionPolicy policy_;
  uint64_t hash_seed_;
  uint64_t generation_ = 0;                 // how often it was dropped
  uint64_t clock_ = 0;                      // goes on with every match and insert
  int num_evictable_ = 0, num_locked_ = 0;  // pages
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_nodes_;
  std::unordered_map<std::string, int32_t> starts_;  // by salt
  Children children_;                                // by parent and first page
  std::unique_ptr<EvictionHeap> evictable_;          // nodes without children and locks
};

}  // namespace attend
#pragma GCC visibility pop
