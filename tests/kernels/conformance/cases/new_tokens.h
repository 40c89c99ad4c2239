// New tokens of a case: batch arrays, positions and trees.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/conformance/cases/attention_case.h"

namespace attend::conformance {

// Padding requests are last, and padding tokens follow the tokens of all requests. Masks and positions of
// padding tokens are poisoned, since no kernel may read them.
struct NewTokens {
  explicit NewTokens(const AttentionCase& c);

  std::vector<int32_t> cu_seqlen_q;  // [num_reqs + 1]
  std::vector<int32_t> seqlen_kv;    // [num_reqs]
  std::vector<int32_t> positions;    // [num_tokens]
  std::vector<uint64_t> tree_mask;   // [num_tokens, tree_mask_words]; empty: no tree
  int tree_mask_words = 0;
};

// Positions [first, end) of a request that its queries may attend to. A tree mask may exclude some of them.
struct PositionRange {
  int32_t first = 0, end = 0;
  bool contains(int32_t p) const { return first <= p && p < end; }
};
PositionRange unmasked_range(const AttentionCase& c, const NewTokens& tokens, int request);

}  // namespace attend::conformance
