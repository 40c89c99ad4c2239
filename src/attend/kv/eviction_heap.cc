#include "attend/kv/eviction_heap.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

bool EvictionHeap::contains(int32_t node) const {
  return static_cast<size_t>(node) < positions_.size() && positions_[static_cast<size_t>(node)] >= 0;
}

void EvictionHeap::push(int32_t node, const EvictionKey& key) {
  if (static_cast<size_t>(node) >= positions_.size()) reserve(static_cast<size_t>(node) + 1);
  entries_.push_back({key, node});
  place(entries_.size() - 1, {key, node});
  move_up(entries_.size() - 1);
}

void EvictionHeap::reserve(size_t num_nodes) {
  if (num_nodes > positions_.size()) positions_.resize(num_nodes, -1);
  entries_.reserve(positions_.capacity());
}

void EvictionHeap::remove(int32_t node) {
  ensure(contains(node), "eviction heap: node ", node, " is not in the heap");
  const auto i = static_cast<size_t>(positions_[static_cast<size_t>(node)]);
  positions_[static_cast<size_t>(node)] = -1;
  const Entry last = entries_.back();
  entries_.pop_back();
  if (i == entries_.size()) return;
  place(i, last);
  move_up(i);
  move_down(static_cast<size_t>(positions_[static_cast<size_t>(last.node)]));
}

void EvictionHeap::clear() {
  entries_.clear();
  positions_.clear();
}

void EvictionHeap::check() const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    ensure(contains(entry.node) && positions_[static_cast<size_t>(entry.node)] == static_cast<int32_t>(i),
           "eviction heap: node ", entry.node, " is not at ", i);
    ensure(i == 0 || entries_[(i - 1) / 2].key <= entry.key, "eviction heap: node ", entry.node,
           " is ordered before its parent");
  }
}

void EvictionHeap::place(size_t i, const Entry& entry) {
  entries_[i] = entry;
  positions_[static_cast<size_t>(entry.node)] = static_cast<int32_t>(i);
}

void EvictionHeap::move_up(size_t i) {
  const Entry entry = entries_[i];
  for (; i > 0 && entry.key < entries_[(i - 1) / 2].key; i = (i - 1) / 2) place(i, entries_[(i - 1) / 2]);
  place(i, entry);
}

void EvictionHeap::move_down(size_t i) {
  const Entry entry = entries_[i];
  for (size_t child = 2 * i + 1; child < entries_.size(); child = 2 * i + 1) {
    if (child + 1 < entries_.size() && entries_[child + 1].key < entries_[child].key) ++child;
    if (entry.key <= entries_[child].key) break;
    place(i, entries_[child]);
    i = child;
  }
  place(i, entry);
}

}  // namespace attend
