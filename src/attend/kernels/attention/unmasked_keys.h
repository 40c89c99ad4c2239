// Keys that a query sees, as words of 64 keys: the mask of attention_batch.h, for the CPU kernel and for
// make_work().
#pragma once

#include <cstdint>

#include "attend/kernels/attention/attention_batch.h"

namespace attend::kernels {

// One query sees the positions [begin, end), and the new tokens, which start at position `prefix`, with a
// set tree bit and a position of at least `begin`.
struct UnmaskedKeys {
  int32_t begin = 0, end = 0;
  const uint64_t* tree_bits = nullptr;      // null: no tree mask
  const int32_t* tree_positions = nullptr;  // [num_new]
  int32_t prefix = 0;
  int32_t num_new = 0;

  // Visible keys are in [begin, last_end()).
  int32_t last_end() const { return tree_bits == nullptr ? end : prefix + num_new; }
};

// Returns the keys that query `j` of request `request` sees.
UnmaskedKeys visible_keys(const QueryBatch& batch, const AttentionMask& attention_mask, int request, int j);

// Returns the bits of positions first .. first + 63 that are in [begin, end).
inline uint64_t range_bits(int64_t begin, int64_t end, int64_t first) {
  const auto bits_below = [first](int64_t position) {
    const int64_t count = position - first;
    return count <= 0 ? 0 : count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  };
  return bits_below(end) & ~bits_below(begin);
}

// Returns the bits of the visible positions among first .. first + 63.
uint64_t unmasked_word(const UnmaskedKeys& keys, int32_t first);

}  // namespace attend::kernels
