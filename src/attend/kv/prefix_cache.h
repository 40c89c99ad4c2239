// PrefixCache: finds the pages with the K/V of given tokens, so that a request reuses the computed prefix of
// earlier requests.
//
// Tokens are compared by keys: one opaque 32-bit integer per token. Token ids are 0 or more, so keys below 0
// can represent other content.
//
// The cache is a radix tree over pages. A node has the tokens and pages of a run, and every path from a root
// is a cached prefix. Only whole pages are shared, as soon as all of their tokens are known.
//
// A page has one owner at a time: the allocator's free list, a tree node, or the end of one request's row.
// The cache does not call an allocator: insert() and insert_pending() add pages; evict() returns evicted
// pages, and insert() returns duplicates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// Order of eviction. Ties are evicted in the order of last use.
enum class EvictionPolicy : uint8_t {
  kLru,       // least recently used first
  kLfu,       // least frequently used first, counted by requests
  kPriority,  // lowest priority of requests first
};
std::string_view to_string(EvictionPolicy policy);
// Throws Error(kInvalidArgument) for a name other than lru, lfu and priority.
EvictionPolicy parse_eviction_policy(std::string_view name);

class EvictionHeap;
class PrefixCache;
struct EvictionKey;

// Lock of a prefix in use: its pages are not evicted until the lock is released or destroyed. The cache must
// outlive the lock.
class PrefixLock {
 public:
  PrefixLock() = default;  // locks nothing
  PrefixLock(PrefixLock&& other) noexcept;
  PrefixLock& operator=(PrefixLock&& other) noexcept;
  ~PrefixLock() { release(); }

  // Pages of the prefix, from position 0 on.
  int num_pages() const { return num_pages_; }
  // True if the lock has a prefix, which may be empty.
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

// Not thread-safe: the engine's owner thread calls it. Arguments that no correct engine passes throw
// Error(kInternal) and change nothing.
class PrefixCache {
 public:
  PrefixCache(int page_size, EvictionPolicy policy);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Returns a lock of the empty prefix of a namespace. Requests with different salts share nothing.
  PrefixLock open(std::string_view salt = {});

  // Extends the locked prefix by the cached pages of `keys`, which follow the prefix. A partial page at the
  // end of `keys` is ignored. Writes the page ids to the front of `pages` [at least keys.size() / page_size]
  // and returns their number.
  int match(PrefixLock& lock, View<const int32_t> keys, View<PageId> pages);
  // Number of `keys` that are cached, from the start of a namespace. Locks and changes nothing.
  int num_cached_tokens(std::string_view salt, View<const int32_t> keys) const;

  // Number of tokens, less than a page, that `keys` share with the most similar of the cached pages that
  // follow the locked prefix, of which at most 64 are compared, the newest first. `keys` follow the prefix,
  // after match(). No value: nothing that is cached follows the prefix, or a cached page begins with all
  // keys.
  std::optional<int> num_shared_in_next_page(const PrefixLock& lock, View<const int32_t> keys) const;

  // Adds pages with computed K/V after the locked prefix, and locks them. `keys`: [pages.size() * page_size].
  // If the cache already has a page with the same keys, the caller's page is a duplicate: it is appended to
  // `duplicates`, to be freed, and replaced by the cached page in `pages`, to be written to the row. Raises
  // the priority of the path's nodes to `priority`.
  void insert(PrefixLock& lock, View<const int32_t> keys, View<PageId> pages, int priority,
              std::vector<PageId>& duplicates);
  // Adds pages that the next step computes, so that other requests of the step can read them. Adds all pages
  // or none: if the cache already has the first page, the caller keeps its pages, since they will be written.
  // Returns whether the pages were added.
  bool insert_pending(PrefixLock& lock, View<const int32_t> keys, View<const PageId> pages, int priority);

  // Evicts `num_pages` unlocked pages, or all of them if there are fewer, starting at the ends of prefixes.
  // Appends them to `freed`.
  void evict(int num_pages, std::vector<PageId>& freed);
  // Removes everything, regardless of its state, and invalidates all locks. The caller then owns the pages.
  void drop();

  int page_size() const { return static_cast<int>(page_size_); }
  int num_pages() const { return num_evictable_ + num_locked_; }
  int num_evictable_pages() const { return num_evictable_; }
  int num_locked_pages() const { return num_locked_; }
  // Number of tree nodes without the roots of namespaces.
  int num_nodes() const { return static_cast<int>(children_.size()); }
  // All pages that the cache owns, in arbitrary order.
  std::vector<PageId> pages() const;

  // Throws Error(kInternal) unless the tree and its counts are consistent and no page occurs twice. Reads all
  // data, so it is for tests and debug builds.
  void check() const;

 private:
  friend class PrefixLock;

  struct Node {
    int32_t parent = -1;                                                 // -1: root of a namespace, or unused
    int32_t first_child = -1, next_sibling = -1, previous_sibling = -1;  // the newest child is the first
    int32_t num_children = 0;
    int32_t num_locks = 0;  // locks of this node and its descendants
    int32_t end_page = 0;   // pages from the root to the end of this node
    int64_t num_uses = 0;   // requests that used it
    int64_t priority = 0;
    uint64_t last_use = 0;
    const std::string* salt = nullptr;  // only in the root of a namespace
    std::vector<int32_t> keys;          // [pages.size() * page_size]
    std::vector<PageId> pages;
  };
  // Result of a descent by one edge, which the tokens of one page select.
  struct Step {
    int32_t node = -1;  // -1: no such child
    size_t num_pages = 0;
  };
  // The key is already a hash.
  struct IdentityHash {
    size_t operator()(uint64_t hash) const noexcept { return hash; }
  };
  using Children = std::unordered_multimap<uint64_t, int32_t, IdentityHash>;

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  void check_lock(const PrefixLock& lock) const;
  uint64_t child_hash(int32_t parent, const int32_t* page) const;
  Step step(int32_t from, View<const int32_t> keys) const;
  // Like step(), but splits the node where its tokens differ from `keys`.
  Step step_and_split(int32_t from, View<const int32_t> keys);
  int32_t split(int32_t node, size_t num_pages);
  int32_t add_node();
  void add_leaf(PrefixLock& lock, View<const int32_t> keys, View<const PageId> pages, int priority);
  void link(int32_t node);
  void unlink(int32_t node);
  Children::iterator child_link(int32_t node);
  void move_lock(PrefixLock& lock, int32_t node);
  void raise_priority(int32_t node, int priority);
  void unlock(int32_t node) noexcept;
  void add_evictable(int32_t node);
  void remove_leaf(int32_t node);
  void remove_start(int32_t node);
  EvictionKey eviction_key(const Node& node) const;

  size_t page_size_;
  EvictionPolicy policy_;
  uint64_t hash_seed_;
  uint64_t generation_ = 0;                 // number of drop() calls
  uint64_t clock_ = 0;                      // incremented by each match and insert
  int num_evictable_ = 0, num_locked_ = 0;  // pages
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_nodes_;
  std::unordered_map<std::string, int32_t> roots_;  // by salt
  Children children_;                               // by parent and first page
  std::unique_ptr<EvictionHeap> evictable_;         // nodes without children and locks
};

}  // namespace attend
#pragma GCC visibility pop
