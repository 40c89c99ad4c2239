#include "attend/engine/speculation/child_index.h"

#include <utility>

#include "attend/base/error.h"

namespace attend {

size_t ChildIndex::first_place(int32_t parent, int32_t token) const {
  // Finalizer of splitmix64.
  uint64_t x = static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 | static_cast<uint32_t>(token);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<size_t>(x ^ (x >> 31)) & (entries_.size() - 1);
}

size_t ChildIndex::place(int32_t parent, int32_t token) const {
  size_t at = first_place(parent, token);
  while (entries_[at].child != kNone && (entries_[at].parent != parent || entries_[at].token != token))
    at = next(at);
  return at;
}

int32_t ChildIndex::find(int32_t parent, int32_t token) const { return entries_[place(parent, token)].child; }

void ChildIndex::set(int32_t parent, int32_t token, int32_t child) {
  Entry* entry = &entries_[place(parent, token)];
  if (entry->child == kNone) {
    if (4 * (num_used_ + 1) > 3 * entries_.size()) {
      grow();
      entry = &entries_[place(parent, token)];
    }
    ++num_used_;
  }
  *entry = {parent, token, child};
}

void ChildIndex::remove(int32_t parent, int32_t token) {
  size_t hole = place(parent, token);
  ensure(entries_[hole].child != kNone, "child index: node ", parent, " has no child with token ", token);
  --num_used_;
  // Entries that probing moved past the hole move back.
  for (size_t at = next(hole); entries_[at].child != kNone; at = next(at)) {
    const size_t first = first_place(entries_[at].parent, entries_[at].token);
    const size_t mask = entries_.size() - 1;
    if (((at - first) & mask) < ((at - hole) & mask)) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole] = {};
}

void ChildIndex::grow() {
  const std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
  for (const Entry& entry : before)
    if (entry.child != kNone) entries_[place(entry.parent, entry.token)] = entry;
}

}  // namespace attend
