// EvictionHeap: nodes of a prefix cache that may be evicted, the one to go first on top.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attend {

// What goes first: the lowest rank, and among equals the one whose last use is longest ago.
struct EvictionKey {
  int64_t rank = 0;
  uint64_t last_use = 0;
  auto operator<=>(const EvictionKey&) const = default;
};

// A binary heap that knows where each node stands, so that any node leaves in O(log n). Nodes are small
// numbers, each at most once in it.
class EvictionHeap {
 public:
  // A node that is not in it. Takes no memory while nodes are below what was reserved.
  void push(int32_t node, const EvictionKey& key);
  void reserve(size_t num_nodes);
  // Throws Error(kInternal) for a node that is not in it.
  void remove(int32_t node);
  int32_t top() const { return entries_.front().node; }
  bool contains(int32_t node) const;
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  void clear();

  // Throws Error(kInternal) unless every entry is where it is known to be, and none is before its parent.
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
  std::vector<int32_t> positions_;  // by node: where it stands in entries_; -1: nowhere
};

}  // namespace attend
