// PairTable: hash table from pairs of 32-bit ids to 32-bit values, built once and then only read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attend::tokenizer {

class PairTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Allocates a table for at most `max_pairs` pairs.
  explicit PairTable(size_t max_pairs = 0)
      : slots_(std::bit_ceil(max_pairs + max_pairs / 2 + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

  // Sets the value of a pair; kNone is not allowed. A later value replaces an earlier one.
  void set(uint32_t first, uint32_t second, uint32_t value) {
    Slot& slot = slots_[find(make_key(first, second))];
    slot = {make_key(first, second), value};
  }

  // Returns the value of a pair, or kNone.
  uint32_t get(uint32_t first, uint32_t second) const { return slots_[find(make_key(first, second))].value; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t value = kNone;  // kNone: free slot
  };

  static uint64_t make_key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

  // Returns the slot with the key, or the free slot for it.
  size_t find(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t i = (key * 0x9E3779B97F4A7C15ull) >> shift_;  // Fibonacci hashing
    while (slots_[i].value != kNone && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;  // size is a power of two, at most two thirds full
  int shift_;
};

}  // namespace attend::tokenizer
