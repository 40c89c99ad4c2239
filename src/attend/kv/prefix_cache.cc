#include "attend/kv/prefix_cache.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <unordered_set>
#include <utility>

#include "attend/base/error.h"
#include "attend/kv/eviction_heap.h"
#include "attend/kv/kv_pool.h"

namespace attend {
namespace {

// Returns the XOR of both halves of a 128-bit product.
uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_bytes(const int32_t* values, size_t count, uint64_t seed) {
  uint64_t hash = seed;
  for (size_t i = 0; i < count; ++i)
    hash = mix(hash ^ static_cast<uint32_t>(values[i]), 0x9e3779b97f4a7c15ull ^ (seed >> 1));
  return hash;
}

}  // namespace

std::string_view to_string(EvictionPolicy policy) {
  switch (policy) {
    case EvictionPolicy::kLru:
      return "lru";
    case EvictionPolicy::kLfu:
      return "lfu";
    case EvictionPolicy::kPriority:
      return "priority";
  }
  return "";
}

EvictionPolicy parse_eviction_policy(std::string_view name) {
  for (const auto policy : {EvictionPolicy::kLru, EvictionPolicy::kLfu, EvictionPolicy::kPriority})
    if (name == to_string(policy)) return policy;
  fail(ErrorCode::kInvalidArgument, "eviction policy ", name, ": expected lru, lfu or priority");
}

PrefixLock::PrefixLock(PrefixLock&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      generation_(other.generation_),
      node_(other.node_),
      num_pages_(std::exchange(other.num_pages_, 0)) {}

PrefixLock& PrefixLock::operator=(PrefixLock&& other) noexcept {
  if (this == &other) return *this;
  release();
  cache_ = std::exchange(other.cache_, nullptr);
  generation_ = other.generation_;
  node_ = other.node_;
  num_pages_ = std::exchange(other.num_pages_, 0);
  return *this;
}

void PrefixLock::release() noexcept {
  if (cache_ != nullptr && cache_->generation_ == generation_) cache_->unlock(node_);
  cache_ = nullptr;
  num_pages_ = 0;
}

PrefixCache::PrefixCache(int page_size, EvictionPolicy policy)
    : page_size_(static_cast<size_t>(page_size)),
      policy_(policy),
      evictable_(std::make_unique<EvictionHeap>()) {
  check_page_size(page_size);
  // Prompts are untrusted: a random seed prevents prompts that are chosen to collide.
  std::random_device random;
  hash_seed_ = (uint64_t{random()} << 32 | random()) | 1;
}

PrefixCache::~PrefixCache() = default;

PrefixLock PrefixCache::open(std::string_view salt) {
  const auto [found, added] = roots_.try_emplace(std::string(salt), -1);
  if (added) {
    try {
      found->second = add_node();
    } catch (...) {  // out of memory
      roots_.erase(found);
      throw;
    }
    at(found->second).salt = &found->first;
  }
  ++at(found->second).num_locks;
  return {*this, generation_, found->second};
}

int PrefixCache::match(PrefixLock& lock, View<const int32_t> keys, View<PageId> pages) {
  check_lock(lock);
  ensure(pages.size() >= keys.size() / page_size_, "prefix cache: ", keys.size(),
         " keys to match: output for ", pages.size(), " pages is too short");
  int32_t node = lock.node_;
  size_t num_matched = 0;
  for (Step next = step_and_split(node, keys); next.node >= 0;
       next = step_and_split(node, keys.subspan(num_matched * page_size_))) {
    node = next.node;
    std::copy_n(at(node).pages.data(), next.num_pages, pages.data() + num_matched);
    num_matched += next.num_pages;
  }
  move_lock(lock, node);
  return static_cast<int>(num_matched);
}

int PrefixCache::num_cached_tokens(std::string_view salt, View<const int32_t> keys) const {
  const auto start = roots_.find(std::string(salt));
  if (start == roots_.end()) return 0;
  int32_t node = start->second;
  size_t num_matched = 0;
  while (true) {
    const Step next = step(node, keys.subspan(num_matched * page_size_));
    num_matched += next.num_pages;
    if (next.node < 0 || next.num_pages < at(next.node).pages.size()) break;
    node = next.node;
  }
  return static_cast<int>(num_matched * page_size_);
}

std::optional<int> PrefixCache::num_shared_in_next_page(const PrefixLock& lock,
                                                        View<const int32_t> keys) const {
  constexpr int kMaxCompared = 64;
  check_lock(lock);
  const View<const int32_t> page = keys.first(std::min(keys.size(), page_size_));
  std::optional<int> most;
  int32_t child = at(lock.node_).first_child;
  for (int i = 0; child >= 0 && i < kMaxCompared; ++i, child = at(child).next_sibling) {
    const auto differs = std::mismatch(page.begin(), page.end(), at(child).keys.begin()).first;
    if (differs == page.end()) return std::nullopt;
    most = std::max(most.value_or(0), static_cast<int>(differs - page.begin()));
  }
  return most;
}

void PrefixCache::insert(PrefixLock& lock, View<const int32_t> keys, View<PageId> pages, int priority,
                         std::vector<PageId>& duplicates) {
  check_lock(lock);
  ensure(keys.size() == pages.size() * page_size_, "prefix cache: ", keys.size(), " keys for ", pages.size(),
         " pages of ", page_size_);
  int32_t node = lock.node_;
  size_t num_known = 0;
  for (Step next = step_and_split(node, keys); next.node >= 0;
       next = step_and_split(node, keys.subspan(num_known * page_size_))) {
    node = next.node;
    for (size_t i = 0; i < next.num_pages; ++i)
      duplicates.push_back(std::exchange(pages[num_known + i], at(node).pages[i]));
    num_known += next.num_pages;
  }
  move_lock(lock, node);
  if (num_known < pages.size())
    add_leaf(lock, keys.subspan(num_known * page_size_), pages.subspan(num_known), priority);
  raise_priority(lock.node_, priority);
}

bool PrefixCache::insert_pending(PrefixLock& lock, View<const int32_t> keys, View<const PageId> pages,
                                 int priority) {
  check_lock(lock);
  ensure(keys.size() == pages.size() * page_size_, "prefix cache: ", keys.size(), " keys for ", pages.size(),
         " pages of ", page_size_);
  if (pages.empty() || step(lock.node_, keys).node >= 0) return false;
  add_leaf(lock, keys, pages, priority);
  raise_priority(lock.node_, priority);
  return true;
}

void PrefixCache::evict(int num_pages, std::vector<PageId>& freed) {
  size_t wanted = static_cast<size_t>(std::max(num_pages, 0));
  while (wanted > 0 && !evictable_->empty()) {
    const int32_t leaf = evictable_->top();
    Node& node = at(leaf);
    const size_t taken = std::min(wanted, node.pages.size());
    freed.insert(freed.end(), node.pages.rbegin(), node.pages.rbegin() + static_cast<std::ptrdiff_t>(taken));
    num_evictable_ -= static_cast<int>(taken);
    wanted -= taken;
    if (taken == node.pages.size()) {
      remove_leaf(leaf);
    } else {
      node.pages.resize(node.pages.size() - taken);
      node.keys.resize(node.pages.size() * page_size_);
      node.end_page -= static_cast<int32_t>(taken);
    }
  }
}

void PrefixCache::drop() {
  ++generation_;
  nodes_.clear();
  unused_nodes_.clear();
  roots_.clear();
  children_.clear();
  evictable_->clear();
  num_evictable_ = num_locked_ = 0;
}

std::vector<PageId> PrefixCache::pages() const {
  std::vector<PageId> all;
  for (const Node& node : nodes_) all.insert(all.end(), node.pages.begin(), node.pages.end());
  return all;
}

void PrefixCache::check_lock(const PrefixLock& lock) const {
  ensure(lock.cache_ == this && lock.generation_ == generation_,
         "prefix cache: lock of another cache, or from before drop()");
}

uint64_t PrefixCache::child_hash(int32_t parent, const int32_t* page) const {
  return mix(hash_bytes(page, page_size_, hash_seed_) ^ static_cast<uint32_t>(parent), 0xd6e8feb86659fd93ull);
}

PrefixCache::Step PrefixCache::step(int32_t from, View<const int32_t> keys) const {
  const size_t page_bytes = page_size_ * sizeof(int32_t);
  if (keys.size() < page_size_ || at(from).num_children == 0) return {};
  const auto [first, last] = children_.equal_range(child_hash(from, keys.data()));
  for (auto found = first; found != last; ++found) {
    const Node& child = at(found->second);
    if (child.parent != from || std::memcmp(child.keys.data(), keys.data(), page_bytes) != 0) continue;
    const size_t longest = std::min(child.pages.size(), keys.size() / page_size_);
    if (std::memcmp(child.keys.data(), keys.data(), longest * page_bytes) == 0)
      return {found->second, longest};
    size_t same = 1;
    while (std::memcmp(child.keys.data() + same * page_size_, keys.data() + same * page_size_, page_bytes) ==
           0)
      ++same;
    return {found->second, same};
  }
  return {};
}

PrefixCache::Step PrefixCache::step_and_split(int32_t from, View<const int32_t> keys) {
  Step next = step(from, keys);
  if (next.node >= 0 && next.num_pages < at(next.node).pages.size())
    next.node = split(next.node, next.num_pages);
  return next;
}

int32_t PrefixCache::split(int32_t node, size_t num_pages) {
  const int32_t front = add_node();
  unlink(node);
  Node &first = at(front), &second = at(node);
  const auto num_tokens = static_cast<std::ptrdiff_t>(num_pages * page_size_);
  const auto pages_end = second.pages.begin() + static_cast<std::ptrdiff_t>(num_pages);
  first.pages.assign(second.pages.begin(), pages_end);
  first.keys.assign(second.keys.begin(), second.keys.begin() + num_tokens);
  second.end_page = first.end_page = second.end_page;
  first.end_page -= static_cast<int32_t>(second.pages.size() - num_pages);
  second.pages.erase(second.pages.begin(), pages_end);
  second.keys.erase(second.keys.begin(), second.keys.begin() + num_tokens);
  // Locks and uses of the end also apply to the front.
  first.num_locks = second.num_locks;
  first.num_uses = second.num_uses;
  first.priority = second.priority;
  first.last_use = second.last_use;
  first.parent = std::exchange(second.parent, front);
  first.num_children = 1;
  link(front);
  link(node);
  return front;
}

int32_t PrefixCache::add_node() {
  if (unused_nodes_.empty()) {
    if (nodes_.size() == nodes_.capacity()) nodes_.reserve(std::max<size_t>(16, 2 * nodes_.size()));
    // Reserves memory, so that releasing a lock (in destructors) never allocates.
    evictable_->reserve(nodes_.size() + 1);
    unused_nodes_.reserve(nodes_.capacity());
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  const int32_t node = unused_nodes_.back();
  unused_nodes_.pop_back();
  return node;
}

void PrefixCache::add_leaf(PrefixLock& lock, View<const int32_t> keys, View<const PageId> pages,
                           int priority) {
  const int32_t leaf = add_node();
  Node& node = at(leaf);
  node.parent = lock.node_;
  node.end_page = at(lock.node_).end_page + static_cast<int32_t>(pages.size());
  node.priority = priority;
  node.keys.assign(keys.begin(), keys.end());
  node.pages.assign(pages.begin(), pages.end());
  ++at(node.parent).num_children;
  if (evictable_->contains(node.parent)) evictable_->remove(node.parent);
  num_evictable_ += static_cast<int>(pages.size());
  link(leaf);
  move_lock(lock, leaf);
}

void PrefixCache::link(int32_t node) {
  children_.emplace(child_hash(at(node).parent, at(node).keys.data()), node);
  const int32_t next = std::exchange(at(at(node).parent).first_child, node);
  at(node).next_sibling = next;
  if (next >= 0) at(next).previous_sibling = node;
}

void PrefixCache::unlink(int32_t node) {
  children_.erase(child_link(node));
  const int32_t next = std::exchange(at(node).next_sibling, -1);
  const int32_t previous = std::exchange(at(node).previous_sibling, -1);
  (previous >= 0 ? at(previous).next_sibling : at(at(node).parent).first_child) = next;
  if (next >= 0) at(next).previous_sibling = previous;
}

PrefixCache::Children::iterator PrefixCache::child_link(int32_t node) {
  auto [found, last] = children_.equal_range(child_hash(at(node).parent, at(node).keys.data()));
  while (found != last && found->second != node) ++found;
  ensure(found != last, "prefix cache: node ", node, " has no parent");
  return found;
}

void PrefixCache::move_lock(PrefixLock& lock, int32_t node) {
  ++clock_;
  for (int32_t above = node; above != lock.node_; above = at(above).parent) {
    Node& locked = at(above);
    if (locked.num_locks++ == 0) {
      num_evictable_ -= static_cast<int>(locked.pages.size());
      num_locked_ += static_cast<int>(locked.pages.size());
      if (evictable_->contains(above)) evictable_->remove(above);
    }
    ++locked.num_uses;
    locked.last_use = clock_;
  }
  lock.node_ = node;
  lock.num_pages_ = at(node).end_page;
}

void PrefixCache::raise_priority(int32_t node, int priority) {
  for (; node >= 0; node = at(node).parent)
    at(node).priority = std::max<int64_t>(at(node).priority, priority);
}

void PrefixCache::unlock(int32_t node) noexcept {
  ++clock_;
  for (int32_t above = node, parent; above >= 0; above = parent) {
    Node& locked = at(above);
    parent = locked.parent;
    locked.last_use = clock_;
    if (--locked.num_locks > 0) continue;
    num_locked_ -= static_cast<int>(locked.pages.size());
    num_evictable_ += static_cast<int>(locked.pages.size());
    if (locked.num_children == 0) add_evictable(above);
  }
}

// Adds a node that no longer has children or locks.
void PrefixCache::add_evictable(int32_t node) {
  if (at(node).parent >= 0)
    evictable_->push(node, eviction_key(at(node)));
  else
    remove_start(node);
}

void PrefixCache::remove_leaf(int32_t node) {
  const int32_t parent = at(node).parent;
  evictable_->remove(node);
  unlink(node);
  at(node) = {};
  unused_nodes_.push_back(node);
  if (--at(parent).num_children == 0 && at(parent).num_locks == 0) add_evictable(parent);
}

void PrefixCache::remove_start(int32_t node) {
  roots_.erase(roots_.find(*at(node).salt));
  at(node) = {};
  unused_nodes_.push_back(node);
}

EvictionKey PrefixCache::eviction_key(const Node& node) const {
  switch (policy_) {
    case EvictionPolicy::kLru:
      break;
    case EvictionPolicy::kLfu:
      return {node.num_uses, node.last_use};
    case EvictionPolicy::kPriority:
      return {node.priority, node.last_use};
  }
  return {0, node.last_use};
}

void PrefixCache::check() const {
  int num_evictable = 0, num_locked = 0;
  size_t num_evictable_nodes = 0, num_linked = 0;
  std::vector<int32_t> num_children(nodes_.size(), 0), num_locks(nodes_.size(), 0);
  std::unordered_set<PageId> pages;
  const std::unordered_set<int32_t> unused(unused_nodes_.begin(), unused_nodes_.end());
  for (int32_t i = 0; i < static_cast<int32_t>(nodes_.size()); ++i) {
    const Node& node = at(i);
    if (unused.contains(i)) continue;
    const auto num_pages = static_cast<int>(node.pages.size());
    ensure(node.keys.size() == node.pages.size() * page_size_, "prefix cache: node ", i, " of ",
           node.keys.size(), " keys and ", num_pages, " pages");
    ensure((node.parent < 0) == (num_pages == 0), "prefix cache: node ", i, " has ", num_pages, " pages");
    (node.num_locks > 0 ? num_locked : num_evictable) += num_pages;
    for (const PageId page : node.pages)
      ensure(pages.insert(page).second, "prefix cache: page ", page, " occurs twice");
    const bool is_evictable = node.parent >= 0 && node.num_children == 0 && node.num_locks == 0;
    ensure(evictable_->contains(i) == is_evictable, "prefix cache: node ", i, " with ", node.num_children,
           " children and ", node.num_locks, " locks is ", is_evictable ? "not " : "",
           "in the eviction heap");
    num_evictable_nodes += is_evictable;
    if (node.parent < 0) {
      ensure(node.salt != nullptr && roots_.at(*node.salt) == i && node.end_page == 0, "prefix cache: node ",
             i, " is not the root of its namespace");
      continue;
    }
    const Node& parent = at(node.parent);
    ensure(node.previous_sibling >= 0 ? at(node.previous_sibling).next_sibling == i : parent.first_child == i,
           "prefix cache: node ", i, " is not in the list of its parent");
    ensure(node.next_sibling < 0 || at(node.next_sibling).previous_sibling == i, "prefix cache: node ", i,
           " is not linked from its next sibling");
    ++num_linked;
    ++num_children[static_cast<size_t>(node.parent)];
    num_locks[static_cast<size_t>(node.parent)] += node.num_locks;
    ensure(node.end_page == parent.end_page + num_pages, "prefix cache: node ", i, " ends at page ",
           node.end_page, ", its parent at ", parent.end_page);
    const Step found = step(node.parent, node.keys);
    ensure(found.node == i, "prefix cache: node ", i, " is not reachable from its parent");
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    ensure(nodes_[i].num_children == num_children[i], "prefix cache: node ", i, " counts ",
           nodes_[i].num_children, " children and has ", num_children[i]);
    ensure(nodes_[i].num_locks >= num_locks[i], "prefix cache: node ", i, " has ", nodes_[i].num_locks,
           " locks, its children ", num_locks[i]);
  }
  ensure(num_evictable == num_evictable_ && num_locked == num_locked_, "prefix cache: counts ",
         num_evictable_, " evictable and ", num_locked_, " locked pages, has ", num_evictable, " and ",
         num_locked);
  ensure(num_linked == children_.size() && num_evictable_nodes == evictable_->size(),
         "prefix cache: ", children_.size(), " links for ", num_linked, " nodes, ", evictable_->size(),
         " of ", num_evictable_nodes, " in the eviction heap");
  evictable_->check();
}

}  // namespace attend
