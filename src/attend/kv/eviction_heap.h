// EvictionHeap: priority queue of prefix cache nodes that may be evicted. The next one to evict is on top.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attend {

// Eviction order: lowest rank first, and least recently used first for equal ranks.
struct EvictionKey {
  int64_t rank = 0;
  uint64_t last_use = 0;
  auto operator<=>(const EvictionKey&) const = default;
};

// Binary heap with the index of each node, so that any node is removed in O(log n). Nodes are small numbers,
// and each is in the heap at most once.
class EvictionHeap {
 public:
  // Adds a node that is not in the heap. Does not allocate for nodes below the reserved number.
  void push(int32_t node, const EvictionKey& key);
  void reserve(size_t num_nodes);
  // Throws Error(kInternal) for a node that is not in the heap.
  void remove(int32_t node);
  int32_t top() const { return entries_.front().node; }
  bool contains(int32_t node) const;
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  void clear();

  // Throws Error(kInternal) unless all positions are correct and the heap order holds.
  void check() const;

 private:
  struct Entry {
    EvictionKey key;
    int32_t node;
  };

  void place(size_t i, const Entry& entry);
  void move_up(size_t i);
  void move_down(size_t i);

  std::vector<Entry> entries_;
  std::vector<int32_t> positions_;  // by node: index in entries_; -1: not in the heap
};

}  // namespace attend
