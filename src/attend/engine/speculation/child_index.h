// ChildIndex: hash table of a tree's children by parent and token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attend {

// Open addressing with linear probing: one array, and no tombstones, so that lookups do not slow down while
// entries come and go.
class ChildIndex {
 public:
  static constexpr int32_t kNone = -1;

  ChildIndex() : entries_(kMinSize) {}

  // Returns the child, or kNone.
  int32_t find(int32_t parent, int32_t token) const;
  // Adds the child, or replaces the one with this parent and token.
  void set(int32_t parent, int32_t token, int32_t child);
  // Requires that there is one.
  void remove(int32_t parent, int32_t token);

  size_t num_bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  struct Entry {
    int32_t parent = 0, token = 0, child = kNone;  // kNone: the entry is free
  };
  static constexpr size_t kMinSize = 16;

  // Index of the entry with this key, or of the free entry where it belongs.
  size_t place(int32_t parent, int32_t token) const;
  size_t first_place(int32_t parent, int32_t token) const;
  size_t next(size_t at) const { return (at + 1) & (entries_.size() - 1); }
  void grow();

  std::vector<Entry> entries_;  // a power of two
  size_t num_used_ = 0;
};

}  // namespace attend
